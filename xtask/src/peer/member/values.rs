//! Baton's recipes that are driven by single commands: barriers, groups and counters.

use baton::barrier::{BarrierEntry, BarrierLayout};
use baton::membership::{GroupLayout, Registration};
use baton::value::CounterLayout;
use baton::{Barrier, Client, Counter, DoubleBarrier, Membership};
use tokio::sync::Mutex;

use super::{MemberFailure, other};
use crate::Result;

pub(super) enum Values {
    Barrier(Barrier),
    DoubleBarrier(DoubleBarrier, Mutex<Option<BarrierEntry>>),
    Group(Membership, String, Mutex<Option<Registration>>),
    Counter(Counter),
}

impl Values {
    /// Number of members that meet at a double barrier, in every library.
    const MEET: u32 = 3;

    pub(super) fn open(
        client: &Client,
        recipe: &str,
        layout: &str,
        path: &str,
        name: &str,
    ) -> Result<Self> {
        Ok(match (recipe, layout) {
            ("baton-barrier", _) => Self::Barrier(Barrier::new(client, path)?),
            ("baton-double-barrier", _) => {
                let barrier = DoubleBarrier::new(client, path, Self::MEET)?;
                Self::DoubleBarrier(barrier.layout(BarrierLayout::Curator), Mutex::default())
            }
            ("baton-group", layout) => {
                let layout = match layout {
                    "party" => GroupLayout::Party,
                    _ => GroupLayout::GroupMember,
                };
                let group = Membership::new(client, path)?.layout(layout);
                Self::Group(group, name.to_owned(), Mutex::default())
            }
            ("baton-counter", layout) => {
                let layout = match layout {
                    "int32" => CounterLayout::Int32,
                    _ => CounterLayout::Decimal,
                };
                Self::Counter(Counter::new(client, path)?.layout(layout))
            }
            _ => return Err(format!("no recipe {recipe}").into()),
        })
    }

    pub(super) async fn run(
        &self,
        command: &str,
        argument: Option<&&str>,
    ) -> std::result::Result<String, MemberFailure> {
        match (self, command) {
            (Self::Barrier(barrier), "set") => barrier.close().await.map_err(other)?,
            (Self::Barrier(barrier), "clear") => barrier.open().await.map_err(other)?,
            (Self::Barrier(barrier), "wait") => barrier.wait().await.map_err(other)?,
            (Self::DoubleBarrier(barrier, inside), "enter") => {
                *inside.lock().await = Some(barrier.enter().await.map_err(other)?);
            }
            (Self::DoubleBarrier(_, inside), "leave") => {
                if let Some(inside) = inside.lock().await.take() {
                    inside.leave().await.map_err(other)?;
                }
            }
            (Self::Group(group, name, registration), command) => {
                let mut registration = registration.lock().await;
                if command == "join" {
                    let joined = group.join(name, b"").map_err(other)?;
                    joined.registered().await.map_err(other)?;
                    *registration = Some(joined);
                } else if command == "quit"
                    && let Some(registration) = registration.take()
                {
                    registration.leave().await;
                }
                let members = group.members().await.map_err(other)?;
                let mut ids: Vec<String> = members.into_iter().map(|member| member.id).collect();
                ids.sort();
                return Ok(ids.join(","));
            }
            (Self::Counter(counter), _) => {
                let times = argument
                    .map_or(Ok(0), |times| times.parse())
                    .map_err(other)?;
                for _ in 0..times {
                    counter.add(1).await.map_err(other)?;
                }
                return Ok(counter.get().await.map_err(other)?.to_string());
            }
            _ => {
                return Err(MemberFailure::Other(
                    "no such command for this recipe".to_owned(),
                ));
            }
        }
        Ok(String::new())
    }
}
