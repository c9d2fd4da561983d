/** Somebody who reads the change feed while it grows: nothing that was committed is passed by, and nothing comes twice. */
import type { EventRecord } from "../../src/core/records.ts";
import type { Broken } from "./checks.ts";
import type { MirroredEvent } from "./mirror.ts";

type Item = Pick<EventRecord, "cursor" | "subjectKind" | "subjectId" | "number">;

export interface Feed {
  /** These events are there now. */
  committed(events: readonly MirroredEvent[]): void;
  /** Reads on from where it was. Where nobody was writing when it began, all that was there must come. */
  look(): Promise<void>;
}

const PAGE = 200;

export function createFeed(
  list: (input: unknown) => Promise<unknown>,
  quiet: () => boolean,
  fail: (broken: Broken) => void,
): Feed {
  let cursor: string | null = null;
  let reading = false;
  const seen = new Set<string>();
  const unread = new Set<string>();

  async function page(): Promise<number> {
    const { items, cursor: next } = (await list({ after: cursor, limit: PAGE, runId: null })) as {
      readonly items: readonly Item[];
      readonly cursor: string | null;
    };
    cursor = next;
    for (const { subjectKind, subjectId, number } of items) {
      const key = `${subjectKind}:${subjectId} ${number}`;
      if (seen.has(key)) fail({ invariant: "feed", what: `the event ${key} comes twice` });
      seen.add(key);
      unread.delete(key);
    }
    return items.length;
  }

  return {
    committed(events) {
      for (const event of events) {
        const key = `${event.subject_kind}:${event.subject_id} ${event.number}`;
        if (!seen.has(key)) unread.add(key);
      }
    },
    async look() {
      if (reading) return;
      reading = true;
      const due = quiet() ? [...unread] : [];
      try {
        while ((await page()) === PAGE);
        const lost = due.filter((key) => unread.has(key));
        if (lost.length > 0) fail({ invariant: "feed", what: `${lost.join(", ")} passed by` });
      } catch {
        // A store that is away is asked again next time.
      }
      reading = false;
    },
  };
}
