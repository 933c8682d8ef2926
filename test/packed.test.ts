import t from 'tap'
import { Packer, Unpacker } from '../core/lib/packed.ts'

t.test('numbers of any size come back as they were packed', t => {
  const signed = [0n, -1n, 1n, 63n, 64n, -65n, 2n ** 49n, 2n ** 52n, -(2n ** 53n), 9n * 10n ** 15n, -(2n ** 80n)]
  const packer = new Packer()
  for (const value of signed) packer.signed(value)
  packer.number(Number.MAX_SAFE_INTEGER).text('größer').signed(-5n)
  const unpacker = new Unpacker(packer.bytes())
  for (const value of signed) t.equal(unpacker.signed(), value)
  t.equal(unpacker.number(), Number.MAX_SAFE_INTEGER)
  t.equal(unpacker.text(), 'größer')
  t.equal(unpacker.signed(), -5n)
  t.equal(unpacker.done, true)
  t.throws(() => unpacker.signed(), RangeError)
  t.throws(() => new Unpacker(Uint8Array.of(200)).signed(), RangeError)
  t.end()
})
