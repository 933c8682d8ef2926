/** Certificates for providers that speak TLS, signed by a root of the test. */
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { generate } from 'selfsigned'
import type { Test } from 'tap'

/** A day in milliseconds. */
export const DAY_MS = 86_400_000

/** A key and its certificate. */
export interface Pems {
  readonly private: string
  readonly cert: string
}

const root: Pems = await generate([{ name: 'commonName', value: 'A root of the test' }], {
  algorithm: 'sha256',
  extensions: [
    { name: 'basicConstraints', cA: true, critical: true },
    { name: 'keyUsage', keyCertSign: true, digitalSignature: true, critical: true },
  ],
})
/** Lets this process trust certificates of the test's root. */
export function trustRoot(t: Test): void {
  const standard = getCACertificates('default')
  setDefaultCACertificates([...standard, root.cert])
  t.teardown(() => setDefaultCACertificates(standard))
}

/** Makes a certificate for a name. @param trusted whether the test's root signs it */
export function certificateFor(name: string, from: number, until: number, trusted = true): Promise<Pems> {
  return generate([{ name: 'commonName', value: name }], {
    algorithm: 'sha256',
    notBeforeDate: new Date(from),
    notAfterDate: new Date(until),
    extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: name }] }],
    ...(trusted && { ca: { key: root.private, cert: root.cert } }),
  })
}
