//! The part of a reading that a client gets, encoded.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;
use virtlens_export::{json, json_line};
use virtlens_model::snapshot::Snapshot;

use crate::collect::readings::{Encoding, Text, gzip};
use crate::http::answer::Problem;
use crate::http::auth::{Access, Refusal};
use crate::http::namespaces::Namespaces;
use crate::http::state::Caller;
use crate::views::pick::{NoSuchVm, is_called, pick};

/// Returns the present reading for a client. Clients that see the whole node share one
/// encoding of it.
///
/// # Errors
///
/// If a reading is unavailable, or if the client selects no VM that it may see.
pub(super) async fn present(
    caller: &Caller,
    access: &Access,
    vm: Option<&str>,
    encoding: Encoding,
) -> Result<Bytes, Problem> {
    let readings = &caller.state.readings;
    if *access == Access::Whole && vm.is_none() {
        return Ok(readings.encoded(encoding).await?);
    }
    let snapshot = readings.snapshot().await?;
    let view = View::of(caller, access, vm, &snapshot).await?;
    if view.vm.is_none() && view.is_empty() {
        let text = "forbidden: the token's user may neither get the nonResourceURL /metrics nor the pods of \
                    a namespace that has a VM on this node";
        return Err(Problem::new(StatusCode::FORBIDDEN, text));
    }
    let encoded = caller.state.work(move || {
        let selected = view.select(&snapshot)?;
        Ok(encode(&selected, encoding))
    });
    let encoded: Result<Bytes, NoSuchVm> = encoded.await.ok_or_else(broken)?;
    encoded.map_err(|error| Problem::new(StatusCode::NOT_FOUND, error.alone()))
}

/// Returns one of several readings for a client as a line; `None` if the client may see only
/// own pods, and none of them has a VM. The line has no VMs if none has the name.
///
/// # Errors
///
/// If it cannot be decided what the client may see.
pub(super) async fn line(
    caller: &Caller,
    access: &Access,
    vm: Option<&str>,
    snapshot: Arc<Snapshot>,
) -> Result<Option<Bytes>, Problem> {
    let view = View::of(caller, access, vm, &snapshot).await?;
    if view.is_empty() {
        return Ok(None);
    }
    let encoded = caller.state.work(move || {
        let selected = view.select(&snapshot);
        let selected = selected.unwrap_or_else(|_| Cow::Owned(view.seen(&snapshot).without_vms()));
        encode(&selected, LINE)
    });
    encoded.await.ok_or_else(broken).map(Some)
}

/// Encoding of a line.
pub(super) const LINE: Encoding = Encoding {
    text: Text::JsonLine,
    gzip: false,
};

/// The answer if the work of an encoding panicked.
pub(super) fn broken() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "cannot encode the reading",
    )
}

fn encode(snapshot: &Snapshot, encoding: Encoding) -> Bytes {
    let text = match encoding.text {
        Text::JsonLine => json_line(snapshot),
        Text::Json | Text::Metrics(_) => json(snapshot),
    };
    let text = text.expect("all its values have a JSON");
    if encoding.gzip {
        gzip(text.as_bytes()).into()
    } else {
        text.into()
    }
}

/// Selects a part of a reading.
struct View {
    /// Namespaces whose pods the client may see; `None` if it may see the whole node.
    namespaces: Option<Namespaces>,
    vm: Option<String>,
}

impl View {
    /// Decides on the namespaces of the VMs that the client selects.
    async fn of(
        caller: &Caller,
        access: &Access,
        vm: Option<&str>,
        snapshot: &Snapshot,
    ) -> Result<Self, Refusal> {
        let namespaces = match access {
            Access::Whole => None,
            Access::OwnPods(token) => {
                let wanted = snapshot.vms.iter();
                let wanted = wanted.filter(|one| vm.is_none_or(|name| is_called(one, name)));
                let wanted = wanted.filter_map(|vm| vm.namespace.clone()).collect();
                Some(caller.namespaces(token, &wanted).await?)
            }
        };
        Ok(Self {
            namespaces,
            vm: vm.map(str::to_owned),
        })
    }

    /// Whether the client may see no VM.
    fn is_empty(&self) -> bool {
        self.namespaces.as_ref().is_some_and(Namespaces::is_empty)
    }

    /// What the client may see of a reading.
    fn seen<'s>(&self, snapshot: &'s Snapshot) -> Cow<'s, Snapshot> {
        match &self.namespaces {
            None => Cow::Borrowed(snapshot),
            Some(visible) => Cow::Owned(snapshot.for_tenant(|name| visible.contains(name))),
        }
    }

    /// What the client may see and selects.
    fn select<'s>(&self, snapshot: &'s Snapshot) -> Result<Cow<'s, Snapshot>, NoSuchVm> {
        let seen = self.seen(snapshot);
        if self.vm.is_none() {
            return Ok(seen);
        }
        let vms = pick(&seen.vms, self.vm.as_deref())?;
        let vms = vms.into_iter().cloned().collect();
        Ok(Cow::Owned(Snapshot {
            vms,
            ..seen.without_vms()
        }))
    }
}
