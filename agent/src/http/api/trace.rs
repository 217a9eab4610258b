//! `/api/v1/trace`: takes a trace of a VM, and answers with the file.

use std::sync::mpsc::channel;

use hyper::StatusCode;
use virtlens_model::snapshot::{Snapshot, Vm};

use crate::collect::traces::{MOST_BESIDE, NoTrace, Request};
use crate::http::answer::{Answer, OCTETS, Problem};
use crate::http::api::file::{self, Contents};
use crate::http::api::stream::STALLED;
use crate::http::query::{self, TraceQuery};
use crate::http::state::Caller;
use crate::views::pick::pick;

/// Time after which a client may try again, s.
const RETRY_AFTER: u32 = 10;

/// Takes a trace. Without a client that waits for it, it ends.
pub(super) async fn take(caller: Caller) -> Result<Answer, Problem> {
    caller.admit_trace().await?;
    let given = query::trace(caller.query()).map_err(Problem::bad_request)?;
    let TraceQuery {
        vm,
        length,
        max_mib,
    } = given;
    let place = caller.state.trace()?;
    let snapshot = caller.state.readings.snapshot().await?;
    let (pid, name) = the_one(&snapshot, &vm)?;
    drop(snapshot);
    caller.limit.extend(length + MOST_BESIDE + STALLED);
    let request = Request {
        pid,
        length,
        max_mib,
    };
    let peer = caller.peer;
    tracing::info!(vm = name, pid, %peer, "a client traces a VM");
    let (waits, wanted) = channel();
    let traces = caller.state.traces.clone();
    let taking = tokio::task::spawn_blocking(move || {
        let file = traces.take(&request, &wanted)?;
        let length = file
            .metadata()
            .map_err(|error| NoTrace::Failed(error.to_string()))?
            .len();
        Ok::<_, NoTrace>(Contents { file, length })
    });
    let taken = tokio::select! {
        () = caller.state.stopped() => return Err(Problem::for_now("the agent is stopping", 1)),
        taken = taking => taken,
    };
    // Until here the client waits: if it disconnects, this is dropped, and the trace ends.
    drop(waits);
    match taken {
        Ok(Ok(contents)) => Ok(file::send(caller, OCTETS, contents, place)),
        Ok(Err(reason)) => {
            tracing::warn!(vm = name, pid, %peer, %reason, "no trace for a client");
            Err(reason.into())
        }
        Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "cannot trace the VM",
        )),
    }
}

impl From<NoTrace> for Problem {
    fn from(reason: NoTrace) -> Self {
        let text = reason.to_string();
        match reason {
            NoTrace::Busy | NoTrace::Short(_) => Self::for_now(text + "; try again", RETRY_AFTER),
            NoTrace::Unwanted | NoTrace::Failed(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

/// Process id and name of the running VM that is called `wanted`; there must be exactly one.
fn the_one(snapshot: &Snapshot, wanted: &str) -> Result<(u32, String), Problem> {
    let picked = pick(&snapshot.vms, Some(wanted));
    let picked = picked.map_err(|error| Problem::new(StatusCode::NOT_FOUND, error.alone()))?;
    let running: Vec<&Vm> = picked.into_iter().filter(|vm| vm.running).collect();
    match running[..] {
        [] => {
            let text = format!("VM {wanted} has ended");
            Err(Problem::new(StatusCode::NOT_FOUND, text))
        }
        [one] => Ok((one.pid, one.vm.to_string())),
        [..] => {
            let pids: Vec<String> = running.iter().map(|vm| vm.pid.to_string()).collect();
            let text = format!(
                "{wanted} names {} VMs; select one by the pid of its VMM: {}",
                pids.len(),
                pids.join(", ")
            );
            Err(Problem::new(StatusCode::CONFLICT, text))
        }
    }
}
