import t from 'tap'
import { csvLine } from '../core/lib/csv.ts'

t.test('each text is quoted, and a spreadsheet runs none of it', async t => {
  for (const [value, field] of [
    ['Ann', '"Ann"'],
    ['a "b", c', '"a ""b"", c"'],
    ['two\nlines', '"two\nlines"'],
    ['=1+1', `"'=1+1"`],
    [' \t@x', `"' \t'@x"`],
    // In countries whose decimals have a comma, spreadsheets separate by semicolons, and all of them by tabs when pasted.
    ['Ann;=cmd()', `"Ann;'=cmd()"`],
    ['Ann;  +1', `"Ann;'  +1"`],
    ['a\t-1', `"a\t'-1"`],
    ['\uff1d1', `"'\uff1d1"`],
    ['a-b; c', '"a-b; c"'],
    ['-12.5', '-12.5'],
    ['', ''],
  ] as const)
    t.equal(csvLine([value]), field, JSON.stringify(value))
  t.equal(csvLine([1, 'x', null, undefined, -2]), '1,"x",,,-2')
})
