/** The phases of an exchange. */

/** How far an exchange has come. */
export type Phase =
  /** The chain or the upstream processes the request. */
  | 'request'
  /** The gateway reads the request body. */
  | 'reading-body'
  /** A reply has begun, even if none of it has been sent. */
  | 'replying'
  /** The upstream has said that the reply is complete. */
  | 'complete'
  /** The last event of the reply has gone to a client. */
  | 'sent'
