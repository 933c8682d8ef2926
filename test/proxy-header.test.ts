import t from 'tap'
import { AddressRanges, clientAddress, groupOf } from '../core/lib/addresses.ts'
import { proxyHeaderIn } from '../core/lib/proxy-header.ts'

const SIGNATURE = '0d0a0d0a000d0a515549540a'
const v2 = (command: string, family: string, rest: string): Buffer =>
  Buffer.from(SIGNATURE + command + family + (rest.length / 2).toString(16).padStart(4, '0') + rest, 'hex')
const V4 = 'cb0071090a000001c35001bb'
const V6 = '20010db800000000000000000000000720010db8000000000000000000000001c35001bb'

t.test('a valid header names the client, or nobody if the connection is the proxy’s own', async t => {
  const valid: readonly [Buffer | string, string | undefined][] = [
    ['PROXY TCP4 203.0.113.9 10.0.0.1 50000 443\r\n', '203.0.113.9'],
    ['PROXY TCP6 2001:db8::7 2001:db8::1 50000 443\r\n', '2001:db8::7'],
    ['PROXY UNKNOWN\r\n', undefined],
    ['PROXY UNKNOWN ff::1 ff::2 1 2\r\n', undefined],
    [v2('21', '11', V4), '203.0.113.9'],
    [v2('21', '21', V6), '2001:db8::7'],
    [v2('21', '11', `${V4}030004a95e2f11`), '203.0.113.9'],
    [v2('20', '00', ''), undefined],
    [v2('20', '11', V4), undefined],
    [v2('21', '31', '00'.repeat(216)), undefined],
  ]
  for (const [header, source] of valid) {
    const bytes = Buffer.from(header)
    t.same(proxyHeaderIn(Buffer.concat([bytes, Buffer.from('GET /')])), { source, bytes: bytes.length }, String(header))
    for (let length = 0; length < bytes.length; length++)
      t.equal(proxyHeaderIn(bytes.subarray(0, length)), 'more', `${length} bytes of ${String(header)}`)
  }
})

t.test('everything else is no header', async t => {
  const invalid: readonly (Buffer | string)[] = [
    'GET / HTTP/1.1\r\n',
    'PROXY TCP4 203.0.113.9 10.0.0.1 50000\r\n',
    'PROXY TCP4 203.0.113.9 10.0.0.1 50000 99999\r\n',
    'PROXY TCP4 203.0.113.9 10.0.0.1 50000 443 \r\n',
    'PROXY TCP4 2001:db8::7 10.0.0.1 50000 443\r\n',
    'PROXY TCP6 fe80::1%eth0 2001:db8::1 50000 443\r\n',
    'PROXY TCP5 203.0.113.9 10.0.0.1 50000 443\r\n',
    'PROXY \r\n',
    `PROXY UNKNOWN ${'x'.repeat(200)}`,
    v2('11', '11', V4),
    v2('22', '11', V4),
    v2('21', '11', 'cb007109'),
    v2('21', '21', V4),
    Buffer.from(`${SIGNATURE}2111ffff`, 'hex'),
  ]
  for (const bytes of invalid) t.equal(proxyHeaderIn(Buffer.from(bytes)), 'none', String(bytes))
})

t.test('an IPv4 address in a form of IPv6 is the same client', t => {
  const trusted = new AddressRanges(['10.0.0.0/8'])
  for (const form of [
    '203.0.113.9',
    '::ffff:203.0.113.9',
    '::FFFF:203.0.113.9',
    '::ffff:cb00:7109',
    '0:0:0:0:0:ffff:cb00:7109',
  ]) {
    t.equal(clientAddress(trusted, form, undefined), '203.0.113.9', form)
    t.equal(clientAddress(trusted, '10.0.0.1', form), '203.0.113.9', form)
    t.equal(groupOf(form), '203.0.113.9', form)
  }
  for (const hop of ['203.0.113.9:51234', '"203.0.113.9:1"', '[::ffff:203.0.113.9]:443', '[::ffff:203.0.113.9]'])
    t.equal(clientAddress(trusted, '10.0.0.1', hop), '203.0.113.9', `${hop}, as proxies write it`)
  t.equal(clientAddress(trusted, '10.0.0.1', '"[2001:db8::7]:4711", 10.1.2.3:80'), '2001:db8::7')
  for (const hop of ['203.0.113.9:', '[203.0.113.9', 'unknown', '203.0.113.9:x'])
    t.equal(clientAddress(trusted, '10.0.0.1', hop), '10.0.0.1', `${hop} is no address`)
  t.equal(groupOf('2001:DB8:0:0:1::7'), '2001:db8:0:0::/64')
  t.equal(groupOf('2001:db8::7'), '2001:db8:0:0::/64')
  t.end()
})
