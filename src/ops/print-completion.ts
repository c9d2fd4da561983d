import { choice, required } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { object, oneOf, string } from "./shape.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;

/** Each asks `drover __complete` with the words before the cursor and the one under it, and offers the lines that it prints. */
const SCRIPTS: { readonly [S in (typeof SHELLS)[number]]: string } = {
  bash: `_drover() {
  local IFS=$'\\n'
  COMPREPLY=($(drover __complete "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [[ \${#COMPREPLY[@]} -eq 0 ]] && compopt -o default 2>/dev/null
}
complete -F _drover drover
`,
  zsh: `#compdef drover
_drover() {
  local -a found
  found=("\${(@f)$(drover __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "\${found[1]}" ]]; then compadd -a found; else _files; fi
}
compdef _drover drover
`,
  fish: `function __drover_complete
    set -l words (commandline -opc) (commandline -ct)
    drover __complete $words[2..-1] 2>/dev/null
end
complete -c drover -f -a '(__drover_complete)'
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
      "completion fish >~/.config/fish/completions/drover.fish",
    ],
  },
  async run(_context, { shell }) {
    return { shell, script: SCRIPTS[shell] };
  },
});
