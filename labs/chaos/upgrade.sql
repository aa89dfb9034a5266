-- What a later version may do while the code of the version before works: add, and replace under the same signature.
ALTER TABLE holdfast.job ADD COLUMN spare_{number} integer;
ALTER TABLE holdfast.worker ADD COLUMN spare_{number} text DEFAULT 'none';
CREATE TABLE holdfast.spare_{number} (job_id bigint PRIMARY KEY);

DO $$
DECLARE
    definition text;
BEGIN
    FOR definition IN
        SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
        WHERE p.pronamespace = 'holdfast'::regnamespace AND p.prokind = 'f'
            AND p.proname IN ('claim_jobs', 'complete_jobs', 'finish_jobs', 'renew_leases', 'reap_jobs', 'enqueue_jobs', 'enqueue')
    LOOP
        EXECUTE regexp_replace(definition, '\mBEGIN\M', 'BEGIN /* {number} */');
    END LOOP;
END $$;
