/** Decides whether a reply is read after its clients have left. The relay reports to it what happens to the reply. */
export interface ReadOnPolicy {
  /**
   * Whether the reply may be given up now. If not, it is given up when everything that the upstream has already sent
   * has been read.
   */
  mayEnd(): boolean
  /** Called when all clients have left. */
  left(): void
  /** Called when a resend joins the reply. */
  joined(): void
  /** Called when usage of the reply arrives. */
  usageCame(): void
  /** Called when the last content of the reply has arrived. */
  rested(): void
  /** Called when the reply ends. */
  over(): void
}
