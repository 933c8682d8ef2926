/** What the bench prints, and what it writes into docs/performance.md. */
import { readFileSync, writeFileSync } from 'node:fs'
import { rowsOf, writeTable } from '../tables.ts'
import type { Row } from './rows.ts'

const PAGE = new URL('../../docs/performance.md', import.meta.url)
const PICTURE = new URL('../../docs/performance.svg', import.meta.url)
/** The heading of the first column. */
export const HEADING = 'cost'
/** The columns of the page, in order: what the others are compared with comes first. */
const COLUMNS = ['bare', 'http-proxy-3', 'nginx', 'tollgate']

/** The figures of each peer, one for each slice. */
export type Slices = ReadonlyMap<string, readonly number[]>

export interface Figures {
  readonly row: Row
  readonly slices: Slices
}

export function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? NaN
}

/**
 * Returns the figure of a peer: in the row's unit, or as a multiple of the bare proxy's. Neighbouring slices run under
 * the same load of the machine, so the median of their ratios is steadier than the ratio of medians. It is rounded as it is
 * printed, so that the page and the bench agree whether a limit is missed.
 */
function figureOf({ row, slices }: Figures, peer: string): number {
  const own = slices.get(peer) ?? []
  const bare = slices.get('bare')
  const figure = median(row.unit || !bare ? own : own.map((figure, slice) => figure / (bare[slice] ?? NaN)))
  return Number(figure.toFixed(digitsOf(row)))
}

/** Digits after the point. */
function digitsOf({ unit }: Row): number {
  if (unit === undefined) return 2
  return unit === 'MB' ? 0 : 1
}

/** Whether Tollgate's figure is within its limit, or was not measured. */
export function isHeld(figures: Figures): boolean {
  const figure = figureOf(figures, 'tollgate')
  return Number.isNaN(figure) || figure <= (figures.row.most ?? Infinity)
}

/** Returns the cells of a row: its title, each peer's figure, and Tollgate's limit. */
export function cellsOf(figures: Figures, peers: Iterable<string> = figures.slices.keys()): string[] {
  const { row, slices } = figures
  const cells = [...peers].map(peer => {
    const figure = figureOf(figures, peer)
    const missed = peer === 'tollgate' && !isHeld(figures) ? ' (missed)' : ''
    if (Number.isNaN(figure)) return ''
    if (row.unit) return `${figure.toFixed(digitsOf(row))} ${row.unit}${missed}`
    return peer === 'bare' || !slices.has('bare')
      ? `${median(slices.get(peer) ?? []).toFixed(0)} µs`
      : `${figure.toFixed(2)}${missed}`
  })
  return [row.title, ...cells, String(row.most ?? '')]
}

/** Writes what was measured into the table of docs/performance.md, and draws its picture again. */
export function writePage(all: readonly Figures[]): void {
  const rows = new Map(rowsOf(readFileSync(PAGE, 'utf8'), HEADING).map(cells => [cells[0] ?? '', cells]))
  for (const figures of all) rows.set(figures.row.title, cellsOf(figures, COLUMNS))
  writeTable(PAGE, HEADING, [...rows.values()])
  writeFileSync(PICTURE, pictureOf([...rows.values()]))
}

const COLOURS = ['#9aa0a6', '#5b8def', '#2ca58d', '#d9534f']
const LABEL = 270
const WIDTH = 820
const BAR = 11
const GROUP = BAR * COLUMNS.length + 12

/** Returns an SVG with a bar for each multiple of the bare proxy in the rows of the table. */
function pictureOf(rows: readonly (readonly string[])[]): string {
  // The other rows have units of their own.
  const groups = rows
    .filter(([, bare = '']) => bare.endsWith(' µs'))
    .map(([title = '', , ...others]) => ({
      title,
      figures: [1, ...others.slice(0, COLUMNS.length - 1).map(parseFloat)],
    }))
  const most = Math.max(...groups.flatMap(({ figures }) => figures.filter(Number.isFinite)))
  const bars = groups.flatMap(({ title, figures }, index) => {
    const top = 30 + index * GROUP
    const bar = (figure: number, place: number): string => {
      if (Number.isNaN(figure)) return ''
      const width = (figure / most) * (WIDTH - LABEL - 50)
      const y = top + place * BAR
      return `<rect x="${LABEL}" y="${y}" width="${width.toFixed(1)}" height="${BAR - 2}" fill="${COLOURS[place]}"/><text x="${(LABEL + width + 4).toFixed(1)}" y="${y + 9}">${figure.toFixed(2)}</text>`
    }
    return [`<text x="${LABEL - 10}" y="${top + GROUP / 2}" text-anchor="end">${title}</text>`, ...figures.map(bar)]
  })
  const legend = COLUMNS.map((peer, place) => `<text x="${LABEL + place * 110}" y="16" fill="${COLOURS[place]}">■ ${peer}</text>`) // prettier-ignore
  const size = `width="${WIDTH}" height="${40 + groups.length * GROUP}"`
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="11" role="img" aria-label="Cost as a multiple of a bare Node proxy"><rect width="100%" height="100%" fill="#fff"/>${[...legend, ...bars].join('\n')}</svg>\n`
}
