#!/usr/bin/env bash
# A worker without Python: runs COMMAND for every execution of the external jobs of a queue.
#   CRONLEDGER_DATABASE_URL=postgresql://… examples/worker.sh QUEUE COMMAND [ARGUMENT…]
# COMMAND gets the payload on stdin, and JOB, SCOPE, ATTEMPT and EXECUTION_ID in its environment. The
# exit status 0 is a success with stdout as its result. Any other status is a failure with the end of
# stderr. After SIGTERM, the worker claims nothing more, and waits for the running command. It needs
# psql, timeout and setsid.
set -u
queue=$1; shift
name=${WORKER_NAME:-$(hostname)-$$} stopping='' out=$(mktemp) err=$(mktemp)
trap 'stopping=1' TERM INT
trap 'rm -f "$out" "$err"' EXIT
export PGCONNECT_TIMEOUT=3

sql() { # STATEMENT [NAME=VALUE…]: psql fills in :NAME and :'NAME' itself, quoted
    local statement=$1 values=(); shift
    for value; do values+=(-v "$value"); done
    timeout "${patience:-10}" psql -XqAt -F $'\x1f' -v ON_ERROR_STOP=1 "${values[@]}" \
        "$CRONLEDGER_DATABASE_URL" <<< "$statement"
}

keep() { # renews the lease until it is lost, cancelled, or cannot be renewed in time: then the work ends
    local seen=$SECONDS patience=$beat answer
    trap - TERM EXIT
    while sleep "$beat" && kill -0 $$ 2> /dev/null; do # not for a worker that was killed
        answer=$(sql "SELECT cronledger.heartbeat(:id, :'token')" id="$id" token="$token") && seen=$SECONDS
        case $answer in ok) ;; '') ((SECONDS - seen < 2 * beat)) || break ;; *) break ;; esac
    done
    kill -TERM -- "-$work" 2> /dev/null; sleep 1; kill -KILL -- "-$work" 2> /dev/null
}

while [[ ! $stopping ]]; do
    row=$(sql "SELECT id, lease_token, job_name, scope_id, attempt, greatest(1, floor(extract(epoch FROM
        stale_timeout) / 3)), coalesce(extract(epoch FROM run_timeout), 0), payload
        FROM cronledger.claim_next(:'queue', :'name')" queue="$queue" name="$name")
    [[ $row ]] || { sleep "${POLL:-1}"; continue; }
    IFS=$'\x1f' read -r id token job scope attempt beat limit payload <<< "$row"
    JOB=$job SCOPE=$scope ATTEMPT=$attempt EXECUTION_ID=$id \
        setsid timeout -k 5 "$limit" "$@" <<< "$payload" > "$out" 2> "$err" & work=$!
    keep & keeper=$!
    while wait "$work"; status=$?; kill -0 "$work" 2> /dev/null; do :; done # a trap ends a wait early
    wait "$work"; status=$?
    for try in {1..60}; do # the lease is renewed meanwhile: a database that is away costs nothing
        if ((status == 0)); then
            answer=$(sql "SELECT cronledger.finish(:id, :'token', to_jsonb(:'said'::text))" \
                id="$id" token="$token" said="$(tail -c 4000 "$out")")
        else
            answer=$(sql "SELECT cronledger.fail(:id, :'token', 'exit_code', :'said')" id="$id" \
                token="$token" said="exit status $status: $(tail -c 3000 "$err")")
        fi && break
        sleep 1
    done
    kill "$keeper" 2> /dev/null
    echo "$id $job/$scope attempt $attempt: exit status $status, ${answer:-not recorded}"
done
