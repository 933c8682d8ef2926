/** Words for people. */

/** Returns a message as a sentence: with a capital letter and a full stop. */
export function sentence(message: string): string {
  return `${message.charAt(0).toUpperCase()}${message.slice(1).replace(/\.$/, '')}.`
}
