/** Converts the quotas of an account. */
import { IANAZone } from 'luxon'
import { ANCHORS, calendarWindow } from '../plans/terms.ts'
import type { Quota } from './config.ts'
import type { Path } from './locate.ts'
import type { SectionReader } from './section-reader.ts'
import { duration } from './units.ts'

/** A quota as the file has it. */
export interface RawQuota {
  readonly credits?: number
  readonly cost?: number
  readonly per: string
  readonly anchor?: string
  readonly zone?: string
  readonly fairShare: boolean
}

const CALENDAR = ['day', 'week', 'month'] as const

/** Converts one quota, or a list. @param raw undefined for none */
export function quotasFromFile(raw: unknown, path: Path, reader: SectionReader): Quota[] {
  if (raw === undefined) return []
  const isList = Array.isArray(raw)
  const list = (isList ? raw : [raw]) as readonly RawQuota[]
  const quotas = list.map((quota, index) => quotaFromFile(quota, isList ? [...path, index] : path, reader))
  quotas.forEach(({ name, unit }, index) => {
    if (quotas.findIndex(quota => quota.name === name && quota.unit === unit) < index)
      reader.add([...path, index], 'two quotas have the same window and unit', 'remove one of them')
  })
  return quotas
}

function quotaFromFile(raw: RawQuota, path: Path, reader: SectionReader): Quota {
  const { per, anchor, zone, fairShare } = raw
  const unit = raw.cost === undefined ? 'credits' : 'cost'
  if ((raw.credits === undefined) === (raw.cost === undefined))
    reader.add(path, 'expected either credits or cost', '{ credits: 500, per: week } or { cost: 50, per: week }')
  const amount = raw[unit] === undefined ? 0n : reader.amount([...path, unit])
  const calendar = CALENDAR.find(word => word === per)
  if (!calendar) {
    for (const [member, value] of Object.entries({ anchor, zone }))
      if (value !== undefined)
        reader.add(
          [...path, member],
          `a rolling window has no ${member}`,
          'set per to day, week or month, or remove it',
        )
    return { name: per, amount, unit, window: { rollingMs: duration(per) }, fairShare }
  }
  if (zone !== undefined && !IANAZone.isValidZone(zone))
    reader.add([...path, 'zone'], `there is no time zone "${zone}"`, 'use a name such as Europe/Berlin')
  const window = calendarWindow(calendar, anchor, zone)
  if (!window)
    reader.add([...path, 'anchor'], `"${anchor}" is no beginning of a ${calendar}`, `write ${ANCHORS[calendar]}`)
  const name = [per, anchor?.replace(' ', '-'), zone].filter(part => part !== undefined).join('@')
  return { name, amount, unit, window: window ?? { rollingMs: 0 }, fairShare }
}
