/** What is decided about replies that nobody waits for. */

/** What becomes of a reply whose clients have left. */
export interface Afterlife {
  /** Whether the reply may be given up now. If not, it is given up as soon as what the upstream has sent already has been read. */
  mayEnd(): boolean
  /** All clients have left. */
  left(): void
  /** A retry listens to it now. */
  joined(): void
  /** Some usage of the reply has come. */
  usageCame(): void
  /** The last content of the reply has come. */
  rested(): void
  /** The reply is over. */
  over(): void
}
