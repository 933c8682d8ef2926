import { deflateSync } from 'node:zlib'
import t from 'tap'
import { pdfSize } from '../../core/metering/pdf.ts'

const pdf = (...parts: (string | Buffer)[]): Buffer =>
  Buffer.concat(['%PDF-1.7\n', ...parts].map(part => (typeof part === 'string' ? Buffer.from(part, 'latin1') : part)))
const PAGE = '3 0 obj << /Type /Page /Parent 2 0 R >> endobj\n'
const packed = (dictionary: string, text: string): Buffer =>
  Buffer.concat([
    Buffer.from(`7 0 obj << ${dictionary} /Filter /FlateDecode >>\nstream\n`),
    deflateSync(text),
    Buffer.from('\nendstream endobj\n'),
  ])

t.test('a PDF is estimated by its pages, wherever they stand, and by the text in its streams', t => {
  t.match(pdfSize(pdf(PAGE, PAGE)), { pages: 2, textBytes: 0 })
  t.match(pdfSize(pdf('2 0 obj << /Type /Pages /Kids [3 0 R 4 0 R 5 0 R] /Count 3 >> endobj')), { pages: 3 })
  t.match(pdfSize(pdf(packed('/Type /ObjStm', '<< /Type /Page >> '.repeat(600)))), { pages: 600 }, 'packed objects')
  t.match(
    pdfSize(pdf(PAGE, '9 0 obj << /Type /Outlines /Count 850 >> endobj')),
    { pages: 1 },
    'an outline has no pages',
  )
  const text = `BT (${'word '.repeat(100_000)}) Tj ET`
  t.match(pdfSize(pdf(PAGE, packed('', text))), { pages: 1, textBytes: text.length }, 'more text than a page shows')
  t.match(
    pdfSize(pdf(PAGE, '8 0 obj << /Filter /DCTDecode >>\nstream\nnot unpacked\nendstream')),
    { pages: 1 },
    'a picture',
  )
  t.match(pdfSize(pdf('1 0 obj << /Title (A survey of streaming models) >> endobj\n', PAGE)), { pages: 1 }, 'a title')
  t.match(pdfSize(pdf(PAGE, packed('/Params << /ModDate (D:2026) >>', 'x'))), { pages: 1 }, 'a text in a dictionary')
  t.match(pdfSize(pdf(packed('/X (obj) /Type /ObjStm', '<< /Type /Page >> '.repeat(600)))), { pages: 600 })
  t.match(pdfSize(pdf(packed('/Type /ObjStm % obj\n', '<< /Type /Page >> '.repeat(600)))), { pages: 600 })
  t.end()
})

t.test('a PDF that hides its size gets no estimate', t => {
  const hidden: [string, Buffer][] = [
    ['no pages', pdf('1 0 obj << >> endobj')],
    ['an encrypted file', pdf(PAGE, 'trailer << /Encrypt 9 0 R >>')],
    ['a name written in numbers', pdf(PAGE, '1 0 obj << /Type /#4fbjStm >> endobj')],
    ['a page that stands twice in its tree', pdf('2 0 obj << /Kids [3 0 R 3 0 R] >> endobj')],
    ['a stream that cannot be unpacked', pdf(PAGE, '7 0 obj << /Filter /FlateDecode >>\nstream\nbroken\nendstream')],
    ['a filter that is not known', pdf(PAGE, '7 0 obj << /Filter /LZWDecode >>\nstream\nx\nendstream')],
    ['a stream without an end', pdf(PAGE, '7 0 obj << >>\nstream\nx')],
    ['a stream behind a comment', pdf(PAGE, '7 0 obj << >> % comment\nstream\nx\nendstream')],
    ['a bomb', pdf(PAGE, packed('', 'Tj '.repeat(9_000_000)))],
    ['a file that is too large', pdf(PAGE, Buffer.alloc(25 * 1024 * 1024))],
  ]
  for (const [what, bytes] of hidden) t.equal(pdfSize(bytes), undefined, what)
  t.end()
})

t.test('a file that is built to take long is scanned once', t => {
  // Each would take hours if the effort grew with the square of the size.
  for (const piece of [
    '/Kids[',
    '/Kids',
    '/Type /ObjStm',
    '/Type /Page ',
    '>>stream\n',
    '<<<<<<',
    '/Type      ',
    '/Count 1 ',
    '/Kids ['.padEnd(4000, '1'),
    `${' '.repeat(3999)}R`,
  ]) {
    t.doesNotThrow(() => pdfSize(pdf(piece.repeat(Math.floor((8 * 1024 * 1024 - 16) / piece.length)))), piece)
  }
  t.end()
})
