/**
 * Pages for browsers, and the files that they load. A page is a plain HTML file with ES modules; nothing is built. Its
 * files are kept in memory, compressed, under a path that changes with their content, so that browsers may cache them
 * forever.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { Reply } from '../errors.ts'

const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
}

/** The files that all pages share. */
const SHARED = fileURLToPath(new URL('./shared', import.meta.url))

/** Files of packages that pages load, by the names under which they are served. */
const VENDORED: Readonly<Record<string, string>> = {
  'uplot.js': 'uplot/dist/uPlot.esm.js',
  'uplot.css': 'uplot/dist/uPlot.min.css',
}

/** Smaller files are not worth compressing. */
const COMPRESSED_MIN_BYTES = 1024

/** What every page gets: it may load only files of its own, and nothing may be made of text. */
const PAGE_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), payment=(), usb=()',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

/** A file in memory. */
interface Asset {
  readonly type: string
  readonly plain: Buffer
  /** Its gzip, once it has been asked for. */
  compressed: Buffer | undefined
}

/** A reply whose body is compressed already. */
class CompressedReply extends Reply {
  override readonly headers: Readonly<Record<string, string>>

  constructor(body: Buffer, headers: Record<string, string>) {
    super(200, body, headers)
    this.headers = { ...headers, 'content-encoding': 'gzip' }
  }
}

/** One page with its files. */
export class WebPage {
  readonly #files = new Map<string, Asset>()
  readonly #prefix: string
  readonly #html: string

  /**
   * Reads the files of a page.
   * @param folder with `index.html`, in which `{{assets}}` stands for the path of the files
   * @param prefix the path below which the files are served, such as `/page`
   */
  constructor(folder: URL, prefix: string) {
    const own = fileURLToPath(folder)
    const require = createRequire(import.meta.url)
    for (const place of [SHARED, own])
      for (const name of readdirSync(place)) this.#add(name, readFileSync(join(place, name)))
    for (const [name, file] of Object.entries(VENDORED)) this.#add(name, readFileSync(require.resolve(file)))
    const html = readFileSync(join(own, 'index.html'), 'utf8')
    const all = [...this.#files].sort(([a], [b]) => (a < b ? -1 : 1))
    const hash = createHash('sha256').update(html)
    for (const [name, { plain }] of all) hash.update(name).update(plain)
    this.#prefix = `${prefix}/${hash.digest('base64url').slice(0, 12)}/`
    this.#html = html.replaceAll('{{assets}}', this.#prefix.slice(0, -1))
  }

  #add(name: string, plain: Buffer): void {
    const type = TYPES[extname(name)]
    if (type === undefined) return
    this.#files.set(name, { type, plain, compressed: undefined })
  }

  /** Returns the page itself. */
  get page(): Reply {
    return new Reply(200, this.#html, { ...PAGE_HEADERS })
  }

  /**
   * Returns one of its files. Undefined if the path has none.
   * @param encodings the header `accept-encoding` of the request
   */
  file(path: string, encodings: string | readonly string[] | undefined): Reply | undefined {
    const asset = path.startsWith(this.#prefix) ? this.#files.get(path.slice(this.#prefix.length)) : undefined
    if (!asset) return undefined
    const headers = {
      'content-type': asset.type,
      'cache-control': 'public, max-age=31536000, immutable',
      'cross-origin-resource-policy': 'same-origin',
      vary: 'accept-encoding',
      'x-content-type-options': 'nosniff',
    }
    const takesGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(String(encodings))
    if (!takesGzip || asset.plain.length < COMPRESSED_MIN_BYTES) return new Reply(200, asset.plain, headers)
    // Compressing every file at the start would delay it, and most are never asked for.
    return new CompressedReply((asset.compressed ??= gzipSync(asset.plain, { level: 9 })), headers)
  }
}
