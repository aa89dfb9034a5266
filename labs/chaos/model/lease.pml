/*
 * The lease protocol: claim, renew, finish, complete, release, reap, cancel, and the one clock.
 *
 * A slot runs one job at a time and is as slow as the search likes: a stopped process needs no rule of its own. Two slots
 * share a worker, the third has another. What is written in one atomic step is one transaction. Budgets bound what the
 * world may do to a run, so that every run ends, and ends in the same way whatever the order.
 *
 * `owner` is a ghost: the slot that made the last claim that still holds. No rule of the protocol looks at it; the
 * assertions do.
 */

#ifndef JOBS
#define JOBS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef MAX
#define MAX 2           /* attempts */
#endif
#ifndef CRASHES
#define CRASHES 1       /* workers that die, and start again under another id */
#endif
#ifndef SERVER_CRASHES
#define SERVER_CRASHES 1        /* that lose the last claim, and its token: asynchronous commit */
#endif
#ifndef LOST_ANSWERS
#define LOST_ANSWERS 1  /* connections that die between a commit and its answer, or between a fence and the commit */
#endif
#ifndef RELEASES
#define RELEASES 1
#endif
#ifndef BEATS
#define BEATS 1         /* renewals of one attempt: max_runtime */
#endif
#define WORKERS 2

mtype = { pending, processing, completed, failed, cancelled, retry, lost, released };

/* The row. */
mtype status[JOBS] = pending;
byte attempt[JOBS], token[JOBS], holder[JOBS];
bool expired[JOBS], cancel_asked[JOBS];
byte row_locked[JOBS];          /* by the open transaction of slot n - 1 */
byte effects[JOBS];             /* rows of a ledger, written with job.complete */

byte token_seq, last_claim;     /* last_claim: of job n - 1, and nothing was committed since */
byte worker_id[WORKERS], next_worker = WORKERS + 1;

/* What a slot believes, and outlives the truth. */
byte held_job[SLOTS], held_token[SLOTS], held_as[SLOTS];

byte crashes = CRASHES, server_crashes = SERVER_CRASHES, lost_answers = LOST_ANSWERS, releases = RELEASES;

/* Ghosts, and the invariants: false in the moment in which one is broken. */
byte owner[JOBS], counted[JOBS], ends[JOBS];
bool no_stale_write = true, no_stale_renewal = true, heartbeat_never_resurrects = true, effect_once = true,
    ends_once = true, attempts_bounded = true, attempts_true = true, reaps_only_expired = true, cancelled_stays = true;

#ifndef WATCH
#define WATCH 511
#endif
#define NO_STALE_WRITE 1
#define NO_STALE_RENEWAL 2
#define HEARTBEAT_NEVER_RESURRECTS 4
#define EFFECT_ONCE 8
#define ENDS_ONCE 16
#define ATTEMPTS_BOUNDED 32
#define ATTEMPTS_TRUE 64
#define REAPS_ONLY_EXPIRED 128
#define CANCELLED_STAYS 256

inline must(flag, name, condition) {
    if
    :: (WATCH & flag) -> name = (condition); assert(name)
    :: else
    fi
}

/* ---- the fences -------------------------------------------------------------------------------------------------- */

#define SAME_TOKEN(s) (token[held_job[s]] == held_token[s])
#define SAME_HOLDER(s) (holder[held_job[s]] == held_as[s])

#if defined(FINISH_WITHOUT_TOKEN)
#define MAY_FINISH(s) (status[held_job[s]] == processing && SAME_HOLDER(s))
#elif defined(FENCE_WITHOUT_HOLDER)
#define MAY_FINISH(s) (SAME_TOKEN(s) && token[held_job[s]] != 0)
#else
#define MAY_FINISH(s) (SAME_TOKEN(s) && SAME_HOLDER(s))
#endif

#if defined(RENEW_WITHOUT_TOKEN)
#define MAY_RENEW(s) (status[held_job[s]] == processing && SAME_HOLDER(s))
#elif defined(RENEW_AFTER_LOSS)
#define MAY_RENEW(s) (status[held_job[s]] == pending || SAME_TOKEN(s) && SAME_HOLDER(s))
#else
#define MAY_RENEW(s) (SAME_TOKEN(s) && SAME_HOLDER(s))
#endif

/* ---- the one way out of `processing` ----------------------------------------------------------------------------- */

inline end_as(j, verdict) {
    ends[j]++;
    must(ENDS_ONCE, ends_once, ends[j] == 1);
    must(CANCELLED_STAYS, cancelled_stays, !(verdict == failed && cancel_asked[j]));
    status[j] = verdict;
    token[j] = 0; holder[j] = 0; owner[j] = 0; expired[j] = false; attempt[j] = 0; counted[j] = 0
}

inline go_back(j) {
    status[j] = pending; owner[j] = 0; expired[j] = false;
#ifndef LEASE_IS_LEFT
    token[j] = 0; holder[j] = 0
#endif
}

#ifdef CANCEL_IS_FORGOTTEN
#define STOPS(j) false
#else
#define STOPS(j) cancel_asked[j]
#endif

inline settle(j, outcome) {
    last_claim = 0;
    if
    :: outcome == completed || outcome == cancelled -> end_as(j, outcome)
    :: else ->
        if
        :: STOPS(j) -> end_as(j, cancelled)
        :: !STOPS(j) && outcome != released && attempt[j] >= MAX -> end_as(j, failed)
        :: else ->
            if
            :: outcome == released ->
                counted[j]--;
#ifndef RELEASE_COUNTS
                attempt[j]--
#endif
            :: else
            fi;
            go_back(j);
            must(ATTEMPTS_TRUE, attempts_true, attempt[j] == counted[j])
        fi
    fi
}

/* ---- what a slot does -------------------------------------------------------------------------------------------- */

/* Slot n believes that it holds this job, under this token, as this worker. */
#define BELIEVES(n, j, tok, w) (SLOTS > n && held_token[n % SLOTS] == tok && held_job[n % SLOTS] == j && held_as[n % SLOTS] == worker_id[w])
#define KNOWN(j, tok, w) (BELIEVES(0, j, tok, w) || BELIEVES(1, j, tok, w) || BELIEVES(2, j, tok, w))

/* After a crash that lost the sequence a worker is given a token that it may still hold for the same job. It must have
   let go of the old run before: no fence can tell the two apart. */
#ifdef CLAIMS_WHAT_IT_RUNS
#define RUNS_ALREADY(j, w) false
#else
#define RUNS_ALREADY(j, w) KNOWN(j, token_seq + 1, w)
#endif

inline claim(s, w, j) {
    must(CANCELLED_STAYS, cancelled_stays, !cancel_asked[j]);
    token_seq = (token_seq + 1) % 16;
    status[j] = processing; expired[j] = false;
    token[j] = token_seq; holder[j] = worker_id[w];
    held_job[s] = j; held_token[s] = token_seq; held_as[s] = worker_id[w];
#ifndef CLAIM_WITHOUT_COUNT
    attempt[j]++;
#endif
#ifndef ENDLESS
    counted[j]++;
#endif
    must(ATTEMPTS_BOUNDED, attempts_bounded, counted[j] <= MAX && attempt[j] <= MAX);
    owner[j] = s + 1;
    last_claim = j + 1
}

inline let_go(s) {
    held_token[s] = 0; held_as[s] = 0; held_job[s] = 0; beats = 0; outcome = 0
}

/* A worker gives back, uncounted, what it holds and does not know of: the answer to a claim that never came. */
inline release_strays(s, w) {
    j = 0;
    do
    :: j == JOBS -> break
    :: else ->
        if
        :: status[j] == processing && holder[j] == worker_id[w] && row_locked[j] == 0 && !KNOWN(j, token[j], w) ->
            settle(j, released)
        :: else
        fi;
        j++
    od;
    j = 0
}

#define JOB held_job[s]
#define ROW_FREE (row_locked[JOB] == 0 || row_locked[JOB] == s + 1)

proctype Slot(byte s, w) {
    byte j, beats;
    mtype outcome;

idle:
end_idle:
    if
    :: atomic { status[0] == pending && !RUNS_ALREADY(0, w) -> claim(s, w, 0) }
#if JOBS > 1
    :: atomic { status[1] == pending && !RUNS_ALREADY(1, w) -> claim(s, w, 1) }
#endif
    fi;
    if
    :: goto running
    :: atomic { lost_answers > 0 -> lost_answers--; let_go(s) };       /* claimed, and nobody knows */
        atomic { release_strays(s, w) };
        goto idle
    fi;

running:
    if
    :: atomic { beats < BEATS && ROW_FREE -> beats++;
        if
        :: MAY_RENEW(s) ->
            last_claim = 0;
            must(HEARTBEAT_NEVER_RESURRECTS, heartbeat_never_resurrects, status[JOB] == processing);
            must(NO_STALE_RENEWAL, no_stale_renewal, owner[JOB] == s + 1);
            status[JOB] = processing; token[JOB] = held_token[s]; holder[JOB] = held_as[s]; owner[JOB] = s + 1;
            expired[JOB] = false;
            if
            :: cancel_asked[JOB] -> outcome = cancelled; goto finish
            :: else
            fi
        :: else -> let_go(s); goto idle        /* lost: aborted at once */
        fi }; goto running
    :: outcome = completed; goto finish
    :: outcome = retry; goto finish
    :: goto complete
    :: atomic { releases > 0 -> releases--; outcome = released }; goto finish
    :: atomic { crashes > 0 -> goto die }
    fi;

finish:
    atomic { ROW_FREE ->
        if
        :: MAY_FINISH(s) ->
            must(NO_STALE_WRITE, no_stale_write, owner[JOB] == s + 1);
            settle(JOB, outcome)
        :: else
        fi };
    if
    :: atomic { lost_answers > 0 -> lost_answers-- }; goto finish      /* written or not? write again */
    :: atomic { crashes > 0 -> goto die }
    :: atomic { true -> let_go(s) }; goto idle
    fi;

complete:
    /* The handler has written its effect, in its own transaction. The fence is the last statement before COMMIT. */
#if defined(COMPLETE_WITHOUT_FENCE)
    atomic { true ->
        must(EFFECT_ONCE, effect_once, effects[JOB] == 0);
        effects[JOB]++;
        if
        :: ROW_FREE && MAY_FINISH(s) -> settle(JOB, completed)
        :: else
        fi };
    atomic { true -> outcome = completed; goto finish };
#else
    atomic { ROW_FREE ->
        if
        :: MAY_FINISH(s) ->
#ifndef FENCE_WITHOUT_LOCK
            row_locked[JOB] = s + 1
#endif
        :: else -> let_go(s); goto idle         /* LeaseLost: rolled back */
        fi };
    if
#ifdef FENCE_WITHOUT_LOCK
    :: atomic { true ->
#else
    :: atomic { row_locked[JOB] == s + 1 ->
        row_locked[JOB] = 0;
#endif
        must(EFFECT_ONCE, effect_once, effects[JOB] == 0);
        must(NO_STALE_WRITE, no_stale_write, owner[JOB] == s + 1);
        effects[JOB]++;
        settle(JOB, completed) };
        if
        :: outcome = completed                  /* told: the finisher will hear that it is completed already */
        :: atomic { lost_answers > 0 -> lost_answers--; outcome = retry }       /* the handler only sees an error */
        fi;
        goto finish
    :: atomic { lost_answers > 0 && row_locked[JOB] == s + 1 -> lost_answers--; row_locked[JOB] = 0; outcome = retry };
        goto finish
#ifndef FENCE_WITHOUT_LOCK
    :: atomic { row_locked[JOB] != s + 1 -> outcome = retry }; goto finish     /* the server went down, and the transaction */
#endif
    :: atomic { crashes > 0 -> goto die }
    fi;
#endif

die:
    /* The other slot of this worker goes on under the old id, as a process does that was only stopped. */
    atomic { true ->
        crashes--;
        if
        :: row_locked[JOB] == s + 1 -> row_locked[JOB] = 0
        :: else
        fi;
        worker_id[w] = next_worker; next_worker++; last_claim = 0;
        let_go(s) };
    goto idle
}

/* ---- the world --------------------------------------------------------------------------------------------------- */

#define RUNS_OUT(j) (status[j] == processing && !expired[j])
#define IS_DUE(j) (status[j] == processing && expired[j] && row_locked[j] == 0)

proctype Clock() {
end:
    do
    :: atomic { RUNS_OUT(0) -> expired[0] = true }
#if JOBS > 1
    :: atomic { RUNS_OUT(1) -> expired[1] = true }
#endif
    od
}

proctype Reaper() {
#ifdef REAP_IN_TWO_STEPS
    byte j;
end:
    do
    :: atomic { IS_DUE(0) -> j = 0 };
        atomic { status[j] == processing && row_locked[j] == 0 ->
            must(REAPS_ONLY_EXPIRED, reaps_only_expired, expired[j]);
            settle(j, lost) }
    od
#else
end:
    do
    :: atomic { IS_DUE(0) -> settle(0, lost) }
#if JOBS > 1
    :: atomic { IS_DUE(1) -> settle(1, lost) }
#endif
    od
#endif
}

proctype Canceller() {
    /* Somebody calls the first job off, or nobody does. */
    if
    :: true
    :: atomic { row_locked[0] == 0 ->
        last_claim = 0;
        if
        :: status[0] == pending -> end_as(0, cancelled)
        :: status[0] == processing -> cancel_asked[0] = true
        :: else
        fi }
    fi
}

proctype Server() {
end:
    do
    :: atomic { server_crashes > 0 && last_claim > 0 ->
        server_crashes--;
        status[last_claim - 1] = pending; token[last_claim - 1] = 0; holder[last_claim - 1] = 0;
        owner[last_claim - 1] = 0; expired[last_claim - 1] = false;
#ifndef CLAIM_WITHOUT_COUNT
        attempt[last_claim - 1]--;
#endif
#ifndef ENDLESS
        counted[last_claim - 1]--;
#endif
        token_seq--; last_claim = 0;
        row_locked[0] = 0;
#if JOBS > 1
        row_locked[1] = 0
#endif
        }
    od
}

init {
    atomic {
        worker_id[0] = 1; worker_id[1] = 2;
        run Slot(0, 0);
#if SLOTS > 1
        run Slot(1, (SLOTS > 2 -> 0 : 1));
#endif
#if SLOTS > 2
        run Slot(2, 1);
#endif
        run Clock();
#ifndef NO_REAPER
        run Reaper();
#endif
        run Canceller();
        run Server()
    }
}

#define ENDED(j) (status[j] == completed || status[j] == failed || status[j] == cancelled)
#ifdef LIVENESS
#if JOBS > 1
ltl every_job_ends { <> (ENDED(0) && ENDED(1)) }
#else
ltl every_job_ends { <> ENDED(0) }
#endif
#endif
