-- What a log has beside the rows of its journals. Statements end with a semicolon at the end of a line.

create table about (
    one boolean primary key default true check (one),
    format int not null,
    layout int not null,
    log_id text not null,
    server int not null,
    servers int not null,
    made timestamptz not null default now(),
    pipeline text,
    graph json,
    mark json
);

create table journals (
    instance int generated always as identity primary key,
    name text collate "C" unique not null
);

-- The row that every commit changes (store/layout.py, JournalRow).
create table raw_journal (
    instance int primary key,
    format int not null,
    incarnation bigint not null,
    commits bigint not null,
    serial bigint not null,
    dues bigint not null,
    marks bigint not null,
    "left" boolean not null,
    sets bigint not null default 0,
    checkpoints bigint not null default 0,
    replay bigint not null default 0,
    claimed timestamptz not null default now()
) with (fillfactor = 30);

-- The fence with which a commit begins (R10).
create function commit_begins(
    which int, life bigint, n bigint, _serial bigint, _dues bigint, _marks bigint, _left boolean,
    _sets bigint, _checkpoints bigint, _replay bigint)
returns void language plpgsql as $$
declare known record;
begin
    -- Held until the transaction ends: a claim that waits for it finds out who holds it.
    perform pg_advisory_xact_lock('raw_journal'::regclass::oid::int, which);
    update raw_journal set commits = n, serial = _serial, dues = _dues, marks = _marks, "left" = _left,
            sets = _sets, checkpoints = _checkpoints, replay = _replay
        where instance = which and incarnation = life and commits = n - 1;
    if not found then
        select incarnation, commits into known from raw_journal where instance = which;
        if known.incarnation is distinct from life then
            raise exception 'fenced: a newer incarnation has claimed the journal' using errcode = 'LL001';
        elsif known.commits = n then
            raise exception 'commit % was made before', n using errcode = 'LL002';
        end if;
        raise exception 'commit % after commit %: out of turn', n, known.commits using errcode = 'LL003';
    end if;
end
$$;

-- Schemas of events, by port and number.
create table schemas (
    instance int,
    port text collate "C",
    number int,
    schema bytea not null,
    primary key (instance, port, number)
);

-- Events of all journals: the segments inherit from it, and say by their names whose they are.
create table raw_events (
    port text collate "C",
    first bigint,
    part int,
    many int,
    schema int,
    kind smallint,
    heads bytea,
    more bytea,
    size bigint,
    payload bytea,
    same json   -- of writes that pass events on: channel and runs of SSNs
);

create table event_segments (
    relation regclass primary key,
    instance int not null
);

-- What events on ports `errors` say: nothing in PostgreSQL reads an Arrow batch.
create table error_texts (
    instance int,
    ssn bigint,
    inset text,
    reason text,
    primary key (instance, ssn)
);

-- The pipeline, as the log's record of it (`about.graph`) has it (`store/postgres/graph.py`).
create table graph_instances (
    instance text primary key,
    at int not null,
    operator text not null,
    called text not null,
    kind text not null,
    stateless boolean not null,
    reads boolean not null,
    stages boolean not null,
    former boolean not null
);

create table graph_ports (
    instance text,
    side text check (side in ('out', 'target')),
    port text,
    traced boolean not null,
    traced_ever boolean not null,
    primary key (instance, side, port)
);

create table graph_channels (
    channel text primary key,
    kind text not null check (kind in ('open', 'closed', 'again')),
    sender text not null,
    out text not null,
    receiver text not null,
    port text not null,
    traced boolean not null,
    traced_ever boolean not null,
    -- Events that had passed before the channel was there.
    passed bigint not null
);

create table graph_spans (
    channel text not null,
    after bigint not null,
    upto bigint
);

create table graph_partitions (
    instance text,
    partition text,
    at int not null,
    action text not null,
    primary key (instance, partition)
);

create table lease (
    one boolean primary key default true check (one),
    run text not null,
    pid int not null,
    host text not null,
    key bigint not null,
    renewed timestamptz not null,
    expires timestamptz not null
);

create table mail (
    number bigint generated always as identity primary key,
    box text collate "C" not null,
    message bytea not null
);

create index on mail (box, number);

create table statuses (
    name text collate "C" primary key,
    status bytea not null,
    at timestamptz not null default now()
) with (fillfactor = 50);

create table hints (
    instance text collate "C" primary key,
    hint text not null
) with (fillfactor = 50);

create table hosts (
    host text primary key,
    seen timestamptz not null
);
