import { choice, required } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { object, oneOf, string } from "./shape.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;

/**
 * Each asks `drover __complete`, whose first line says what follows: offers, or that files, folders or another command's own
 * completion are wanted. Each shell quotes in its own way; bash is given offers that are quoted already, as its completion
 * knows only text.
 */
const SCRIPTS: { readonly [S in (typeof SHELLS)[number]]: string } = {
  bash: `# bash completion for drover: eval "$(drover completion bash)"

# Words after -- belong to another command, whose own completion is asked.
_drover_other() {
  local start=1
  while [[ $start -lt $COMP_CWORD && \${COMP_WORDS[start]} != -- ]]; do ((start++)); done
  ((start++))
  local offset
  for offset in _comp_command_offset _command_offset; do
    if declare -F "$offset" >/dev/null; then
      "$offset" "$start"
      return
    fi
  done
  if [[ $COMP_CWORD -eq $start ]]; then
    COMPREPLY=($(compgen -c -- "\${COMP_WORDS[COMP_CWORD]}"))
    return
  fi
  local spec
  spec=$(complete -p -- "\${COMP_WORDS[start]}" 2>/dev/null)
  if [[ $spec =~ ' -F '([^ ]+) ]]; then
    COMP_LINE=\${COMP_LINE#* -- }
    COMP_POINT=\${#COMP_LINE}
    COMP_WORDS=("\${COMP_WORDS[@]:start}")
    COMP_CWORD=$((COMP_CWORD - start))
    "\${BASH_REMATCH[1]}" "\${COMP_WORDS[0]}" "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD-1]}"
  else
    compopt -o default 2>/dev/null
  fi
}

_drover() {
  local line
  local -a lines=()
  COMPREPLY=()
  while IFS= read -r line; do
    lines+=("$line")
  done < <(command drover __complete bash "$COMP_TYPE" "\${COLUMNS:-80}" "$COMP_WORDBREAKS" "\${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  case "\${lines[0]-}" in
    offers)
      COMPREPLY=("\${lines[@]:1}")
      compopt -o nosort 2>/dev/null
      ;;
    files*) compopt -o default 2>/dev/null ;;
    folders*) compopt -o dirnames 2>/dev/null ;;
    command) _drover_other ;;
  esac
}
complete -F _drover drover
`,
  zsh: `#compdef drover
# zsh completion for drover: a file _drover in a folder of fpath, or eval "$(drover completion zsh)" after compinit

_drover() {
  local -a lines found
  lines=("\${(@f)$(command drover __complete zsh "\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  case \${lines[1]} in
    offers)
      found=("\${(@)lines[2,-1]}")
      (( \${#found} )) && _describe -V 'drover' found
      ;;
    files*)
      [[ $PREFIX == --* ]] && compset -P '*='
      _files
      ;;
    folders*)
      [[ $PREFIX == --* ]] && compset -P '*='
      _files -/
      ;;
    command)
      # Words after -- belong to another command, whose own completion is asked.
      local start=\${words[(i)--]}
      words=("\${(@)words[start+1,-1]}")
      (( CURRENT -= start ))
      _normal
      ;;
  esac
}

if [[ \${funcstack[1]-} == _drover ]]; then
  _drover "$@"
else
  compdef _drover drover
fi
`,
  fish: `# fish completion for drover: drover completion fish >~/.config/fish/completions/drover.fish

function __drover_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l lines (command drover __complete fish $words "$current" 2>/dev/null)
    set -l first (string split -m 1 ' ' -- "$lines[1]")
    set -l prefix "$first[2]"
    switch "$first[1]"
        case offers
            set -e lines[1]
            string join \\n -- $lines
        case files
            set -l typed (string sub -s (math (string length -- "$prefix") + 1) -- "$current")
            string replace -r '^' -- "$prefix" (__fish_complete_path "$typed")
        case folders
            set -l typed (string sub -s (math (string length -- "$prefix") + 1) -- "$current")
            string replace -r '^' -- "$prefix" (__fish_complete_directories "$typed" '')
        case command
            # Words after -- belong to another command, whose own completion is asked.
            set -l line (string replace -r '^.*? -- +' '' -- (commandline -cp))
            complete -C "$line"
    end
end
complete -c drover -f -k -a '(__drover_complete)'
`,
};

export const operation = defineOperation({
  name: "completion",
  where: "local",
  unconfigured: true,
  summary: "Print a completion script for a shell",
  input: { shell: required(choice("the shell", SHELLS, { placeholder: "SHELL" })) },
  output: object({ shell: oneOf(SHELLS), script: string }),
  cli: {
    positionals: ["shell"],
    examples: [
      "completion bash >~/.local/share/bash-completion/completions/drover",
      "completion zsh >~/.zfunc/_drover",
      "completion fish >~/.config/fish/completions/drover.fish",
    ],
    notes: [
      "It offers commands, flags, choices, loops, runs, steps, accounts and files, and asks the",
      'completion of the command after --. For one session: eval "$(drover completion bash)".',
      "For zsh the folder has to be in fpath before compinit runs.",
    ],
  },
  async run(_context, { shell }) {
    return { shell, script: SCRIPTS[shell] };
  },
});
