-- Privileges of the roles, set again after every migration: these roles have exactly these privileges in this schema, whatever they had
-- before. They are groups without login; the users of services become members. A user that completes a job in the handler's own
-- transaction, ends a chain from outside or waits for one needs the privileges of a worker.

-- Roles belong to the whole server, and `migrate` may run for two of its databases at once: the second finds the role there. A user that
-- may not create roles leaves them out; `holdfast migrate` reports it, and grants to roles that an administrator creates. On Citus they
-- belong to the whole cluster: the coordinator creates them on all nodes, or the users that are members of them could not exist there.
DO $$
DECLARE
    citus boolean := to_regproc('citus_is_coordinator') IS NOT NULL;
    wanted text;
BEGIN
    IF citus THEN
        EXECUTE 'SELECT set_config(''citus.enable_ddl_propagation'', citus_is_coordinator()::text, true)';
    END IF;
    FOREACH wanted IN ARRAY ARRAY['holdfast_producer', 'holdfast_worker', 'holdfast_viewer', 'holdfast_operator'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = wanted);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
            NULL;
        END;
    END LOOP;
    IF citus THEN
        PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
    END IF;
END $$;

-- No other transaction adds or drops partitions meanwhile: a grant on a dropped table would fail.
DO $$ BEGIN PERFORM holdfast.lock_partitions(); END $$;

REVOKE ALL ON SCHEMA holdfast FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA holdfast FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA holdfast FROM PUBLIC;

DO $$
DECLARE
    member text;
    rights text;
BEGIN
    FOR member, rights IN
        SELECT r.rolname, x.rights FROM pg_roles r,
            (VALUES ('SCHEMA holdfast'), ('ALL TABLES IN SCHEMA holdfast'), ('ALL SEQUENCES IN SCHEMA holdfast'),
                    ('ALL ROUTINES IN SCHEMA holdfast')) AS x (rights)
        WHERE r.rolname IN ('holdfast_producer', 'holdfast_worker', 'holdfast_viewer', 'holdfast_operator')
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', rights, member);
    END LOOP;

    FOR member, rights IN
        SELECT r.rolname, x.rights FROM pg_roles r JOIN (VALUES
            ('holdfast_producer', 'USAGE ON SCHEMA holdfast'),
            ('holdfast_producer', 'EXECUTE ON FUNCTION holdfast.enqueue_jobs, holdfast.enqueue_group, holdfast.enqueue'),
            ('holdfast_producer', 'EXECUTE ON FUNCTION holdfast.publish_events, holdfast.publish, holdfast.send_message'),
            ('holdfast_producer', 'EXECUTE ON FUNCTION holdfast.get_result, holdfast.set_weight'),

            ('holdfast_worker', 'USAGE ON SCHEMA holdfast'),
            ('holdfast_worker', 'EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast'),
            ('holdfast_worker', 'USAGE ON ALL SEQUENCES IN SCHEMA holdfast'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.job, holdfast.sleeper, holdfast.sweep, holdfast.order_stop'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.limit_rule, holdfast.limit_place, holdfast.limit_rate'),
            ('holdfast_worker', 'SELECT ON holdfast.tenant'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.blocker, holdfast.kept_end, holdfast.watcher'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.group_part, holdfast.group_entry'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.step, holdfast.message'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.schedule, holdfast.worker'),
            ('holdfast_worker', 'SELECT, INSERT ON holdfast.job_history, holdfast.job_failed, holdfast.attempt'),
            ('holdfast_worker', 'SELECT, INSERT, DELETE ON holdfast.tally, holdfast.past_census, holdfast.unique_window, holdfast.inbox'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.run'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE, DELETE ON holdfast.subscription, holdfast.parked, holdfast.member, holdfast.reader'),
            ('holdfast_worker', 'SELECT, INSERT, DELETE ON holdfast.position'),
            ('holdfast_worker', 'SELECT, INSERT ON holdfast.delivery'),
            ('holdfast_worker', 'SELECT ON holdfast.event, holdfast.event_id_seq'),
            ('holdfast_worker', 'SELECT ON holdfast.queue, holdfast.retention, holdfast.migration, holdfast.identity, holdfast.census'),
            ('holdfast_worker', 'SELECT, INSERT, UPDATE ON holdfast.archive_exports'),

            ('holdfast_worker', 'SELECT, UPDATE ON holdfast.token'),
            ('holdfast_worker', 'SELECT, INSERT, DELETE ON holdfast.replay'),
            ('holdfast_worker', 'SELECT, DELETE ON holdfast.landmark, holdfast.bulk_action, holdfast.dismissal'),

            -- Serves the dashboard: it has the privileges of a worker, and may set queues, store tokens, and write the audit log.
            ('holdfast_operator', 'USAGE ON SCHEMA holdfast'),
            ('holdfast_operator', 'EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast'),
            ('holdfast_operator', 'USAGE ON ALL SEQUENCES IN SCHEMA holdfast'),
            ('holdfast_operator', 'SELECT ON ALL TABLES IN SCHEMA holdfast'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.job, holdfast.sleeper, holdfast.sweep, holdfast.order_stop'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.limit_rule, holdfast.limit_place, holdfast.limit_rate'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.blocker, holdfast.kept_end, holdfast.watcher, holdfast.schedule, holdfast.worker'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.group_part, holdfast.group_entry'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.step, holdfast.message'),
            ('holdfast_operator', 'INSERT ON holdfast.job_history, holdfast.job_failed, holdfast.attempt'),
            ('holdfast_operator', 'INSERT, DELETE ON holdfast.tally, holdfast.past_census, holdfast.position, holdfast.replay, holdfast.landmark, holdfast.unique_window'),
            ('holdfast_operator', 'INSERT, UPDATE ON holdfast.run, holdfast.queue'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.bulk_action, holdfast.dismissal'),
            ('holdfast_operator', 'INSERT ON holdfast.access_token'),
            ('holdfast_operator', 'UPDATE (revoked_at) ON holdfast.access_token'),
            ('holdfast_operator', 'INSERT (who, credential, address, role, action, target, jobs, ids, detail) ON holdfast.audit'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.subscription, holdfast.parked, holdfast.member, holdfast.reader'),
            ('holdfast_operator', 'INSERT, UPDATE, DELETE ON holdfast.answered'),
            ('holdfast_operator', 'INSERT, DELETE ON holdfast.ended_session'),
            ('holdfast_operator', 'INSERT ON holdfast.delivery, holdfast.imported'),
            ('holdfast_operator', 'INSERT, DELETE ON holdfast.inbox'),
            ('holdfast_operator', 'INSERT, UPDATE ON holdfast.archive_exports'),
            ('holdfast_operator', 'SELECT ON holdfast.event_id_seq, holdfast.job_id_seq'),
            ('holdfast_operator', 'SELECT, UPDATE ON holdfast.token'),

            ('holdfast_viewer', 'USAGE ON SCHEMA holdfast'),
            ('holdfast_viewer', 'SELECT ON ALL TABLES IN SCHEMA holdfast'),
            ('holdfast_viewer', 'SELECT ON holdfast.event_id_seq'),
            ('holdfast_viewer', 'EXECUTE ON FUNCTION holdfast.lag, holdfast.position_of, holdfast.last_event_id, holdfast.cluster,
                holdfast.positions_are_valid'),
            ('holdfast_viewer', 'EXECUTE ON FUNCTION holdfast.take_census, holdfast.expiry_clock, holdfast.waited, holdfast.with_before'),
            ('holdfast_viewer', 'EXECUTE ON FUNCTION holdfast.get_job, holdfast.find_ended, holdfast.history_spans, holdfast.todays_span,
                holdfast.chains_left, holdfast.group_progress, holdfast.members_of')
        ) AS x (member, rights) ON x.member = r.rolname
    LOOP
        EXECUTE format('GRANT %s TO %I', rights, member);
    END LOOP;

    -- Acting on jobs and subscriptions of others is for operators.
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_worker') THEN
        REVOKE EXECUTE ON FUNCTION holdfast.act_on_jobs, holdfast.reschedule_job, holdfast.delete_job, holdfast.replay_subscription,
            holdfast.repartition_subscription, holdfast.rebase_subscription FROM holdfast_worker;
    END IF;

    -- A viewer does not see digests.
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_viewer') THEN
        REVOKE SELECT ON holdfast.access_token FROM holdfast_viewer;
    END IF;

    -- Tomorrow's partitions too. They belong to the owner of the function that makes them.
    FOR member IN
        SELECT p.proowner::regrole::text FROM pg_proc p JOIN pg_roles r ON r.rolname = 'holdfast_viewer'
        WHERE p.oid = 'holdfast.ensure_partitions'::regproc
    LOOP
        EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %s IN SCHEMA holdfast GRANT SELECT ON TABLES TO holdfast_viewer', member);
    END LOOP;
END $$;
