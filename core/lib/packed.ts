/** Packs numbers and texts into few bytes, and reads them back. Numbers take seven bits a byte. */

/** Collects bytes. */
export class Packer {
  readonly #bytes: number[] = []

  /** Adds a whole number from 0 to 2^53 - 1. @throws RangeError for any other */
  number(value: number | bigint): this {
    if (value < 0) throw new RangeError('only numbers from 0 on can be packed')
    let rest = Number(value)
    if (rest > Number.MAX_SAFE_INTEGER) throw new RangeError(`${value} is too large to be packed`)
    while (rest > 127) {
      this.#bytes.push((rest % 128) + 128)
      rest = Math.floor(rest / 128)
    }
    this.#bytes.push(rest)
    return this
  }

  /** Adds a number of any size that may be negative. */
  signed(value: bigint): this {
    let rest = value < 0n ? -value * 2n - 1n : value * 2n
    for (; rest > Number.MAX_SAFE_INTEGER; rest /= 128n) this.#bytes.push(Number(rest % 128n) + 128)
    return this.number(rest)
  }

  /** Adds a text with its length. */
  text(value: string): this {
    const bytes = Buffer.from(value)
    this.number(bytes.length)
    for (const byte of bytes) this.#bytes.push(byte)
    return this
  }

  bytes(): Uint8Array {
    return Uint8Array.from(this.#bytes)
  }
}

/** Reads bytes in the order in which they were packed. */
export class Unpacker {
  readonly #bytes: Uint8Array
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes
  }

  /** Whether everything has been read. */
  get done(): boolean {
    return this.#at >= this.#bytes.length
  }

  /** @throws RangeError behind the end */
  number(): number {
    let value = 0
    for (let weight = 1; ; weight *= 128) {
      const byte = this.#bytes[this.#at++]
      if (byte === undefined) throw new RangeError('the packed bytes end too early')
      value += (byte & 127) * weight
      if (byte < 128) return value
    }
  }

  /** @throws RangeError behind the end */
  signed(): bigint {
    let end = this.#at
    while ((this.#bytes[end] ?? 0) > 127) end++
    let value = 0n
    for (let at = end; at >= this.#at; at--) value = value * 128n + BigInt((this.#bytes[at] ?? 0) & 127)
    this.#at = end + 1
    if (this.#at > this.#bytes.length) throw new RangeError('the packed bytes end too early')
    return value % 2n === 0n ? value / 2n : -(value + 1n) / 2n
  }

  text(): string {
    const length = this.number()
    const part = this.#bytes.subarray(this.#at, this.#at + length)
    this.#at += length
    return Buffer.from(part).toString()
  }
}
