-- What a person can query: the five tables of LOG.io (as `store/tables.py` has them), and a few more. Statements end
-- with a semicolon at the end of a line.

create function uint32(raw bytea, at int) returns bigint language sql immutable parallel safe as $$
    select get_byte(raw, at)::bigint | (get_byte(raw, at + 1)::bigint << 8)
        | (get_byte(raw, at + 2)::bigint << 16) | (get_byte(raw, at + 3)::bigint << 24)
$$;

create function uint64(raw bytea, at int) returns bigint language sql immutable parallel safe as $$
    select get_byte(raw, at)::bigint | (get_byte(raw, at + 1)::bigint << 8)
        | (get_byte(raw, at + 2)::bigint << 16) | (get_byte(raw, at + 3)::bigint << 24)
        | (get_byte(raw, at + 4)::bigint << 32) | (get_byte(raw, at + 5)::bigint << 40)
        | (get_byte(raw, at + 6)::bigint << 48) | (get_byte(raw, at + 7)::bigint << 56)
$$;

-- An event as users call it: orders:17, hourly.late:3.
create function event_name(sender text, port text, ssn bigint) returns text language sql immutable parallel safe as $$
    select case when port = 'out' then sender else sender || '.' || port end || ':' || ssn
$$;

-- A member of a set by its name in the log, which is the id of a set of one event.
create function member_name(channel text, ssn bigint) returns text language sql immutable parallel safe as $$
    select regexp_replace(split_part(channel, '>', 1), '\.out$', '') || ':' || ssn
$$;

-- A status as JSON; null if it is none, as a power cut may leave it.
create function status_json(raw bytea) returns json language plpgsql immutable parallel safe as $$
begin
    return convert_from(raw, 'UTF8')::json;
exception when others then
    return null;
end
$$;

-- The operators of the log by their journals; without a number while nobody has claimed it.
create view raw_operators as
select g.*, j.instance as number, coalesce(r.incarnation, 0) as incarnation, coalesce(r.marks, 0) as marks,
    coalesce(r."left", false) as has_left, coalesce(r.sets, 0) as sets
from graph_instances g left join journals j on j.name = g.instance left join raw_journal r on r.instance = j.instance;

-- Events and writes that count, with what their run says of each (`store/packing.py`): 28 bytes.
create view raw_visible as
select s.instance, e.port, n.ssn, e.schema, e.size, e.payload, e.same, e.first, e.many, e.heads, e.tableoid as relation,
    uint32(e.heads, 28 * (n.ssn - e.first)::int) as rows,
    uint64(e.heads, 28 * (n.ssn - e.first)::int + 4) as nbytes,
    uint64(e.heads, 28 * (n.ssn - e.first)::int + 20) as serial
from raw_events e
join event_segments s on s.relation::oid = e.tableoid
join raw_heads h on h.instance = s.instance and h.port = e.port
cross join lateral generate_series(e.first, least(e.first + e.many - 1, h.last)) as n(ssn)
left join raw_pins p on p.instance = s.instance and p.port = e.port and p.block = n.ssn / 64 and n.ssn < h.base
where e.part = 0 and e.kind = 0
    and (n.ssn >= h.base or mod(div(p.value, power(2::numeric, (n.ssn % 64)::numeric)), 2) = 1);

-- Every member of every set that the log remembers: of open ones, done ones, and those that lineage keeps. One that is
-- parked may be kept too: what lineage keeps of it is no row of EVENT_LOG then (`shown`).
create view raw_memberships as
select m.*, m.status = 'undone' or s.serial is null as shown from (
select m.instance, m.serial, part.value ->> 0 as channel, n.ssn, 'undone' as status, s.id_text, false as kept,
    first_value(member_name(part.value ->> 0, n.ssn))
        over (partition by m.instance, m.serial order by m.later, m.place, part.at, pair.at, n.ssn) as first_name
from (
    select instance, serial, true as later, commit as place, runs from raw_members
    union all
    select instance, serial, false, before, runs from raw_covered -- by a checkpoint (R22)
) as m
join raw_sets s on s.instance = m.instance and s.serial = m.serial
cross join lateral json_array_elements(m.runs) with ordinality as part(value, at)
cross join lateral generate_series(0, json_array_length(part.value -> 1) - 2, 2) as pair(at)
cross join lateral generate_series((part.value -> 1 ->> pair.at)::bigint,
    (part.value -> 1 ->> pair.at)::bigint + (part.value -> 1 ->> pair.at + 1)::bigint - 1) as n(ssn)
union all
select d.instance, d.serial, d.channel, n.ssn, 'done', d.id_text, false,
    first_value(member_name(d.channel, n.ssn))
        over (partition by d.instance, d.serial order by d.channel, d.block, pair.at, n.ssn)
from raw_done d
cross join lateral generate_series(0, json_array_length(d.runs) - 2, 2) as pair(at)
cross join lateral generate_series((d.runs ->> pair.at)::bigint,
    (d.runs ->> pair.at)::bigint + (d.runs ->> pair.at + 1)::bigint - 1) as n(ssn)
where not exists (select from raw_kept_sets k where k.instance = d.instance and k.serial = d.serial)
    and not coalesce((select r.first_serial + r.many > d.serial from raw_runs r
        where r.instance = d.instance and r.first_serial <= d.serial order by r.first_serial desc limit 1), false)
union all
select k.instance, k.serial, part.value ->> 0, n.ssn, 'done', k.id_text, true,
    member_name(k.joined #>> '{0,0,0}', (k.joined #>> '{0,0,1,0}')::bigint)
from raw_kept_sets k
cross join lateral json_array_elements(k.joined -> 0) as part(value)
cross join lateral generate_series(0, json_array_length(part.value -> 1) - 2, 2) as pair(at)
cross join lateral generate_series((part.value -> 1 ->> pair.at)::bigint,
    (part.value -> 1 ->> pair.at)::bigint + (part.value -> 1 ->> pair.at + 1)::bigint - 1) as n(ssn)
union all
select r.instance, r.first_serial + n.at, r.channel, r.ssn + n.at, 'done', member_name(r.channel, r.ssn + n.at), true,
    member_name(r.channel, r.ssn + n.at)
from raw_runs r cross join lateral generate_series(0, r.many - 1) as n(at)
) as m left join raw_sets s on s.instance = m.instance and s.serial = m.serial;

-- The newest read of each partition. One that was only begun is incomplete (Algorithm 1, step 1).
create view raw_progress as
select o.operator, o.called, o.number, o.stages, known.partition, g.at, g.action as text,
    coalesce(r.status, 'incomplete') as status, coalesce(r.offset_text, 'null') as offset_text,
    coalesce(r.until, 0) as until, o.called || '.' || known.partition || ':r' || coalesce(r.action, 1) as action_id
from raw_operators o
cross join lateral (
    select partition from graph_partitions where instance = o.instance and o.incarnation > 0
    union select partition from raw_reads where instance = o.number) as known
left join graph_partitions g on g.instance = o.instance and g.partition = known.partition
left join raw_reads r on r.instance = o.number and r.partition = known.partition
where not o.former;

create view event_log as
select action_id as event_id, case status when 'done' then 'done' else 'undone' end as status, operator as send_op,
    partition as send_port, operator as rec_op, null as rec_port, null as inset_id
from raw_progress where stages and status <> 'incomplete'
union all
select event_name(o.called, e.port, e.ssn),
    coalesce(m.status, case when e.ssn > coalesce(p.ssn, 0) then 'undone' else 'done' end),
    o.operator, e.port, r.operator, c.port,
    case when m.serial is null and r.stateless and e.ssn <= p.ssn then member_name(c.channel, e.ssn)
        when r.stateless then m.first_name else m.id_text || '#' || m.serial end
from graph_channels c
join raw_operators o on o.instance = c.sender
join raw_operators r on r.instance = c.receiver
join raw_visible e on e.instance = o.number and e.port = c.out
left join raw_positions p on p.instance = r.number and p.channel = c.channel
left join raw_memberships m on m.instance = r.number and m.channel = c.channel and m.ssn = e.ssn and m.shown
where (c.kind = 'open' or (c.kind = 'again' and m.serial is not null)) and not o.former
    and (not exists (select from graph_spans s where s.channel = c.channel) or exists (
        select from graph_spans s where s.channel = c.channel and s.after < e.ssn and e.ssn <= coalesce(s.upto, e.ssn)))
union all
select event_name(o.called, e.port, e.ssn), case when e.ssn <= coalesce(w.value, 0) then 'done' else 'undone' end,
    o.operator, null, o.operator, g.port, null
from graph_ports g
join raw_operators o on o.instance = g.instance
join raw_visible e on e.instance = o.number and e.port = '@' || g.port
left join raw_written w on w.instance = o.number and w.target = g.port
where g.side = 'target' and not o.former;

-- Payloads as Arrow IPC streams: schema, batch and end. Events that were logged together share one, and each is
-- `rows` of its rows, from `first_row` on.
create view raw_bodies as
select e.instance, e.port, e.ssn, e.same, e.first,
    case e.schema when 65535 then p.payload when 65534 then null else s.schema || p.payload || '\xffffffff00000000' end
        as body,
    case when e.schema < 65534 then coalesce((select sum(uint32(e.heads, 28 * before))
        from generate_series(0, (e.ssn - e.first)::int - 1) as before), 0) else 0 end::bigint as first_row
from raw_visible e
left join schemas s on s.instance = e.instance and s.port = e.port and s.number = e.schema
cross join lateral (select case when e.size < 67108864 then e.payload else (
    select string_agg(w.payload, '' order by w.part) from raw_events w
    where w.tableoid = e.relation and w.port = e.port and w.first = e.first) end) as p(payload);

-- A write that passes an event on has that event's payload, in the journal of its sender.
create view raw_passed as
select s.instance, e.port, n.ssn, j.instance as sender, n.out, n.member
from raw_events e
join event_segments s on s.relation::oid = e.tableoid
cross join lateral (
    select regexp_replace(split_part(part.value ->> 0, '>', 1), '\.[^.]*$', '') as sender,
        regexp_replace(split_part(part.value ->> 0, '>', 1), '.*\.', '') as out, m.member,
        e.first - 1 + row_number() over (order by part.at, pair.at, m.member) as ssn
    from json_array_elements(e.same) with ordinality as part(value, at)
    cross join lateral generate_series(0, json_array_length(part.value -> 1) - 2, 2) as pair(at)
    cross join lateral generate_series((part.value -> 1 ->> pair.at)::bigint,
        (part.value -> 1 ->> pair.at)::bigint + (part.value -> 1 ->> pair.at + 1)::bigint - 1) as m(member)) as n
join journals j on j.name = n.sender
where e.same is not null;

create view event_data as
select action_id as event_id, p.operator as send_op, null as send_port, null::bigint as rows, null::bigint as nbytes,
    '{"effect": "' || event_name(p.called, 'out', coalesce(h.last, 0) + 1) || '..' || p.until || '"}' as header,
    null::bytea as body, null::bigint as first_row
from raw_progress p left join raw_heads h on h.instance = p.number and h.port = 'out'
where p.stages and p.status = 'complete'
union all
select event_name(o.called, e.port, e.ssn), o.operator, case g.side when 'out' then e.port end, e.rows, e.nbytes, null,
    coalesce(b.body, passed.body), coalesce(case when b.body is null then passed.first_row end, b.first_row)
from graph_ports g
join raw_operators o on o.instance = g.instance
join raw_visible e on e.instance = o.number and e.port = case g.side when 'out' then g.port else '@' || g.port end
join raw_bodies b on b.instance = e.instance and b.port = e.port and b.ssn = e.ssn
left join raw_passed w on w.instance = e.instance and w.port = e.port and w.ssn = e.ssn
left join raw_bodies passed on passed.instance = w.sender and passed.port = w.out and passed.ssn = w.member
where not o.former;

create view read_action as
select action_id, case status when 'incomplete' then status else 'complete' end as status, operator as op_id,
    partition as conn_id, text as action_desc
from raw_progress;

create view state as
select o.instance || ':s' as state_id, o.operator as op_id, coalesce(offsets.text, s.text) as state
from raw_operators o
left join raw_state s on s.instance = o.number and not o.reads
left join lateral (
    select '{' || string_agg(to_json(p.partition)::text || ': {"offset": ' || p.offset_text || case
        when p.stages and p.status = 'complete' then ', "shown": ' || coalesce(h.last, 0) || ', "until": ' || p.until
        else '' end || '}', ', ' order by p.at nulls last, p.partition collate "C") || '}' as text
    from raw_progress p left join raw_heads h on h.instance = p.number and h.port = 'out'
    where p.number = o.number) as offsets on o.reads
where not o.former and coalesce(offsets.text, s.text) is not null;

create view event_lineage as
select distinct event_name(o.called, e.port, e.ssn) as event_id, o.operator as send_op, e.port as send_port,
    case when o.stateless then m.first_name else m.id_text || '#' || m.serial end as inset_id
from graph_ports g
join raw_operators o on o.instance = g.instance
join raw_visible e on e.instance = o.number and e.port = g.port and e.serial > 0
join raw_memberships m on m.instance = e.instance and m.serial = e.serial
join graph_channels c on c.channel = m.channel and c.traced
where g.side = 'out' and g.traced;

-- Output event and input event. Operators and connections that are gone are among them (R14).
create view lineage_edges as
select distinct event_name(o.called, e.port, e.ssn) as event, event_name(s.called, c.out, m.ssn) as input, o.operator,
    case when o.stateless then m.id_text else m.id_text || '#' || m.serial end as inset
from graph_ports g
join raw_operators o on o.instance = g.instance
join raw_visible e on e.instance = o.number and e.port = g.port and e.serial > 0
join raw_memberships m on m.instance = e.instance and m.serial = e.serial and m.kept
join graph_channels c on c.channel = m.channel and c.traced_ever
join graph_instances s on s.instance = c.sender
where g.side = 'out' and g.traced_ever;

-- What the log has of each input set, and what recovery would have to read of it (`store/footprints.py`; R22).
create view raw_footprints as
select s.instance, s.serial, s.id_text, s.cause, c.serial is not null as saved, coalesce(c.covers, 0) as covered,
    coalesce(c.nbytes, 0) as nbytes, m.records + (c.serial is not null)::int as extent, m.later as replay
from raw_sets s
left join raw_checkpoints c on c.instance = s.instance and c.serial = s.serial
cross join lateral (
    select count(*) as records, coalesce(sum(many.members), 0)::bigint as later
    from raw_members m
    cross join lateral (
        select sum((part.value -> 1 ->> pair.at + 1)::bigint) as members
        from json_array_elements(m.runs) as part(value)
        cross join lateral generate_series(0, json_array_length(part.value -> 1) - 2, 2) as pair(at)) as many
    where m.instance = s.instance and m.serial = s.serial) as m;

create view checkpoints as
select o.called as operator, f.id_text || '#' || f.serial as inset_id,
    case when f.cause is not null then 'result' when f.saved then 'check' else 'open' end as state,
    f.covered + f.replay as members, f.covered, f.nbytes as bytes, f.extent, f.replay
from raw_operators o join raw_footprints f on f.instance = o.number
where not o.stateless
union all
select o.called, m.id_text || '#' || m.serial, 'result', count(*), 0, 0, 0, 0
from raw_operators o
join raw_memberships m on m.instance = o.number and m.status = 'done' and m.shown
where not o.stateless
group by o.called, m.serial, m.id_text;

-- Events on ports `errors`: waiting, being retried, retried, failed again, dropped.
create view raw_errors as
select o.number, event_name(o.called, e.port, e.ssn) as event, o.operator,
    case when s.value is not null then coalesce(nullif(s.value #>> '{}', 'true'), 'retried')
        when t.ssn is not null or exists (
            select from raw_members m cross join lateral json_array_elements(m.runs) as part(value)
            cross join lateral generate_series(0, json_array_length(part.value -> 1) - 2, 2) as pair(at)
            where m.instance = o.number and part.value ->> 0 = o.instance || '.errors>' || o.instance || '.@again'
                and e.ssn >= (part.value -> 1 ->> pair.at)::bigint and e.ssn < (part.value -> 1 ->> pair.at)::bigint
                + (part.value -> 1 ->> pair.at + 1)::bigint) then 'being retried'
        else 'waiting' end as state,
    x.inset, x.reason
from graph_ports g
join raw_operators o on o.instance = g.instance
join raw_visible e on e.instance = o.number and e.port = 'errors'
left join raw_resolved s on s.instance = o.number and s.ssn = e.ssn
left join raw_retrying t on t.instance = o.number and t.ssn = e.ssn
left join error_texts x on x.instance = o.number and x.ssn = e.ssn
where g.side = 'out' and g.port = 'errors' and not o.former and coalesce(s.value #>> '{}', '') <> 'mark';

create view errors as select event, operator, state, inset, reason from raw_errors;

-- Who runs the pipeline, if its process lives (`store/postgres/lease.py`).
create view raw_holder as
select run, pid, host from lease where expires > now() and (
    exists (select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())
        and (classid::bigint << 32) | objid::bigint = key)
    or renewed < pg_postmaster_start_time());

-- How far each operator is. `phase` is that of the run which holds the log, or of the last one.
create view status as
with noted as (
    select n.note, h.run, n.note ->> 'run' = h.run as lives
    from (select 1) as one
    left join (select status_json(status) as note from statuses where name = '@driver') as n on true
    left join raw_holder h on true),
phase as (
    select noted.*, case
        when run is not null then case when lives then note ->> 'phase' else 'starting' end
        when (select bool_and(has_left) from raw_operators where not former) then 'finished'
        when note is null or note ->> 'phase' in ('running', 'draining', 'stopping') then 'died'
        else note ->> 'phase' end as phase
    from noted)
select o.called as operator, phase.phase,
    (select coalesce(greatest(sum(coalesce(p.ssn - p.marks, 0) - coalesce(t.value, 0) - c.passed), 0), 0)
        from graph_channels c
        left join raw_positions p on p.instance = o.number and p.channel = c.channel
        left join raw_clock t on t.instance = o.number and t.channel = '#' || c.channel
        where c.receiver = o.instance and c.kind = 'open')::bigint as taken,
    (select coalesce(sum(coalesce(h.last, 0) - o.marks - coalesce(t.value, 0)), 0) from graph_ports g
        left join raw_heads h on h.instance = o.number and h.port = g.port
        left join raw_clock t on t.instance = o.number and t.channel = '>#' || g.port
        where g.instance = o.instance and g.side = 'out')::bigint as out,
    (select coalesce(sum(greatest(greatest(coalesce(h.last, 0) - s.marks - coalesce(n.value, 0), 0)
            - (coalesce(p.ssn, 0) - coalesce(p.marks, 0) - coalesce(t.value, 0)), 0)), 0)
        from graph_channels c
        join raw_operators s on s.instance = c.sender
        left join raw_heads h on h.instance = s.number and h.port = c.out
        left join raw_positions p on p.instance = o.number and p.channel = c.channel
        left join raw_clock n on n.instance = s.number and n.channel = '>#' || c.out
        left join raw_clock t on t.instance = o.number and t.channel = '#' || c.channel
        where c.receiver = o.instance and c.kind = 'open')::bigint as lag,
    sets.open_sets, sets.checkpoints, sets.replay,
    case when sets.checkpoints > 0 or (select graph -> 'operators' -> o.operator ->> 'policy' from about) = 'eventual'
        then sets.extent else 0 end as extent,
    case when lives then (note -> 'operators' -> o.called ->> 'in_flight')::bigint else 0 end as in_flight,
    (select coalesce(sum(w.value), 0) from raw_written w where w.instance = o.number)::bigint as written,
    (select coalesce(sum(greatest(coalesce(h.last, 0) - coalesce(w.value, 0), 0)), 0) from graph_ports g
        left join raw_heads h on h.instance = o.number and h.port = '@' || g.port
        left join raw_written w on w.instance = o.number and w.target = g.port
        where g.instance = o.instance and g.side = 'target')::bigint as pending,
    coalesce((note -> 'operators' -> o.called ->> 'restarts')::bigint, 0) as restarts,
    (select count(*) from raw_errors x where x.number = o.number and x.state = 'waiting') as errors,
    (select coalesce(sum(coalesce(h.last, 0) - o.marks - coalesce(t.value, 0)), 0) from graph_ports g
        left join raw_heads h on h.instance = o.number and h.port = g.port
        left join raw_clock t on t.instance = o.number and t.channel = '>#' || g.port
        where g.instance = o.instance and g.side = 'out' and g.port = 'late')::bigint as late,
    coalesce((note -> 'operators' -> o.called ->> 'keys')::bigint, 0) as keys,
    (select timestamptz 'epoch' + t.value * interval '1 microsecond' from raw_clock t
        where t.instance = o.number and t.channel = '>') as watermark,
    case when lives then (note -> 'operators' -> o.called ->> 'pid')::bigint end as pid,
    case when lives then note -> 'operators' -> o.called ->> 'host' end as host
from raw_operators o cross join phase
cross join lateral (
    select count(*) as open_sets, count(*) filter (where f.saved) as checkpoints,
        coalesce(sum(f.replay), 0)::bigint as replay, coalesce(sum(f.extent), 0)::bigint as extent
    from raw_footprints f where f.instance = o.number and f.cause is distinct from 'parked') as sets
where not o.former
order by o.at;
