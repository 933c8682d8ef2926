/**
 * Checks that the files in deploy/ agree with the defaults of gateway.yaml, and with the tools that read them if they
 * are installed.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { SCHEMA } from '../core/config/schema.ts'
import { duration } from '../core/config/units.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const file = (name: string): string => readFileSync(join(ROOT, 'deploy', name), 'utf8')
const drainMs = duration(SCHEMA.properties.limits.properties.drain.default)

function has(tool: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${tool}`]).status === 0
}

t.test('the image contains only what runs, has no tests, and does not run as root', t => {
  const dockerfile = file('Dockerfile')
  for (const [, path = ''] of dockerfile.matchAll(/^COPY (?!--from)(\S+) (?:\S+ )*\S+$/gm))
    t.ok(existsSync(join(ROOT, path)), path)
  t.match(dockerfile, /npm ci --omit=dev/)
  t.match(dockerfile, /^USER node$/m)
  t.match(dockerfile, /HEALTHCHECK[^]*health\/ready/)
  t.notMatch(dockerfile, /COPY test|COPY \. /)
  t.end()
})

t.test('the compose file has a Redis that is safe for money, and lets the gateway drain', t => {
  const { services } = parse(file('compose.yaml'))
  const command = services.redis.command.join(' ')
  t.match(command, /--appendonly yes/)
  t.match(command, /--maxmemory \S+ --maxmemory-policy noeviction/)
  t.ok(duration(services.tollgate.stop_grace_period) > drainMs)
  const asked = [...readFileSync(join(ROOT, 'gateway.yaml'), 'utf8').matchAll(/!env ((?:FAM|EDITOR)\w+)/g)]
  t.same(
    asked.map(([, name = '']) => name).filter(name => !(name in services.tollgate.environment)),
    [],
  )
  t.end()
})

t.test('the Kubernetes manifests are complete, probe the right endpoints, and let the gateway drain', t => {
  const objects = parseAllDocuments(file('kubernetes/tollgate.yaml')).map(document => document.toJS())
  t.same(
    objects.map(({ apiVersion, kind }) => `${apiVersion} ${kind}`),
    ['apps/v1 StatefulSet', 'v1 Service', 'policy/v1 PodDisruptionBudget'],
  )
  const { spec } = objects[0].spec.template
  t.ok(spec.terminationGracePeriodSeconds * 1000 > drainMs)
  const [container] = spec.containers
  t.equal(container.readinessProbe.httpGet.path, '/health/ready')
  t.equal(container.livenessProbe.httpGet.path, '/health')
  const volumes = [...spec.volumes, ...objects[0].spec.volumeClaimTemplates.map(({ metadata }: any) => metadata)]
  for (const { name } of container.volumeMounts)
    t.ok(
      volumes.some(volume => volume.name === name),
      name,
    )
  for (const { spec } of objects.slice(1))
    t.same(spec.selector.matchLabels ?? spec.selector, objects[0].spec.selector.matchLabels)
  t.end()
})

t.test('the service lets the gateway drain and does not restart on an invalid file', t => {
  const service = file('tollgate.service')
  t.ok(Number(/^TimeoutStopSec=(\d+)$/m.exec(service)?.[1]) * 1000 > drainMs)
  t.match(service, /^RestartPreventExitStatus=78$/m)
  t.end()
})

t.test('systemd finds no fault in the service', { skip: !has('systemd-analyze') && 'no systemd-analyze' }, t => {
  const { status, stderr } = spawnSync('systemd-analyze', ['verify', join(ROOT, 'deploy/tollgate.service')], {
    encoding: 'utf8',
  })
  t.equal(status, 0, stderr)
  t.end()
})

t.test('nginx accepts its configuration', { skip: (!has('nginx') || !has('openssl')) && 'no nginx' }, t => {
  const folder = join(ROOT, '.tap', 'nginx')
  mkdirSync(folder, { recursive: true })
  const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')]
  spawnSync(
    'openssl',
    `req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -keyout ${key} -out ${certificate}`.split(' '),
  )
  const site = file('nginx.conf')
    .replace('/etc/ssl/tollgate/fullchain.pem', certificate)
    .replace('/etc/ssl/tollgate/privkey.pem', key)
  writeFileSync(join(folder, 'site.conf'), site)
  writeFileSync(
    join(folder, 'nginx.conf'),
    `pid ${folder}/pid; error_log stderr; events {} http { access_log off; include ${folder}/site.conf; }`,
  )
  const { status, stderr } = spawnSync('nginx', ['-t', '-c', join(folder, 'nginx.conf')], { encoding: 'utf8' })
  t.equal(status, 0, stderr)
  t.end()
})

t.test('Caddy accepts its configuration', { skip: !has('caddy') && 'no caddy' }, t => {
  const { status, stderr } = spawnSync(
    'caddy',
    ['validate', '--adapter', 'caddyfile', '--config', join(ROOT, 'deploy/Caddyfile')],
    { encoding: 'utf8' },
  )
  t.equal(status, 0, stderr)
  t.end()
})
