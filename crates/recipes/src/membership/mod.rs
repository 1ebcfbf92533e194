//! Group membership: which processes are present.
//!
//! - [`Membership`]: a group, to join and to observe; it has an example.
//! - [`PersistentNode`]: an ephemeral node that is created again in every new session.
//!
//! Membership is not a lock: that a member is listed says that its session lived a moment ago.

// Owns registration and the live view of a group. Membership is not a lock: that a member is listed
// says that its session lived a moment ago, not that it holds anything.
//
// | module | owns |
// |---|---|
// | `view` | the members of a group, as they change |
// | `persistent_node` | the handle of a node that outlives its session |
// | `keeper` | the task that keeps the node there |
// | `node_control` | the state that handle and keeper share |
// | `layout` | names and data of members, of each library |
// | `error` | why a member is not registered |

mod error;
mod keeper;
mod layout;
mod node_control;
mod persistent_node;
mod view;

pub use error::MemberError;
pub use layout::GroupLayout;
pub use node_control::{ActiveRegistration, NodeState};
pub use persistent_node::PersistentNode;
pub use view::{GroupUpdate, GroupView, Member};

use std::sync::Arc;

use baton_client::Client;
use uuid::Uuid;

use crate::cache::TreeCache;
use crate::options::acl_option;
use crate::recipe_path;
use crate::record::Record;
use view::OwnRegistrations;

/// A group at a path of the tree: its members are the ephemeral nodes below it.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let group = baton::Membership::new(&client, "/services/web")?;
/// let me = group.join("10.0.0.7", b"port=80")?;
/// let mut view = group.updates()?;
/// loop {
///     let update = view.next().await?;
///     for member in &update.left {
///         println!("{} has left; {} remain", member.id, update.members.len());
///     }
/// #   break;
/// }
/// me.leave().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Membership {
    client: Client,
    path: Arc<str>,
    layout: GroupLayout,
    instance: Option<Uuid>,
    own: Arc<OwnRegistrations>,
}

/// A member's registration, kept up until it is closed or dropped.
#[must_use = "dropping the registration leaves the group"]
#[derive(Debug)]
pub struct Registration {
    node: PersistentNode,
    id: String,
    layout: GroupLayout,
    record: Record,
}

impl Membership {
    /// A group at `path`, in Baton's layout. Nothing is sent.
    ///
    /// # Errors
    /// [`MemberError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, MemberError> {
        recipe_path::check(path, "cannot be a group")
            .map_err(|why| MemberError::bad_path(path, why))?;
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
            layout: GroupLayout::default(),
            instance: None,
            own: Arc::new(OwnRegistrations::new()),
        })
    }

    /// Sets the names and data of another library, to share the group with its processes.
    #[must_use]
    pub fn layout(mut self, layout: GroupLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets an instance id: this process takes over the registration of an earlier process with the
    /// same id at once and without a gap, instead of waiting until that session has expired. Only
    /// in Baton's layout, which stores the id. No two processes may use one at the same time: the
    /// later one wins, and the earlier one ends with [`MemberError::Superseded`].
    #[must_use]
    pub fn instance(mut self, id: Uuid) -> Self {
        self.instance = Some(id);
        self
    }

    acl_option!(client);

    /// The group's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Registers a member, in the background; [`Registration::registered`] waits for it.
    ///
    /// # Errors
    /// [`MemberError::BadId`], [`MemberError::NoRoom`]; [`MemberError::Connect`] outside a tokio
    /// runtime.
    pub fn join(&self, id: &str, data: &[u8]) -> Result<Registration, MemberError> {
        let name = self.layout.name(id)?;
        if !data.is_empty() && !self.layout.has_room() {
            return Err(MemberError::NoRoom {
                path: self.path.to_string(),
            });
        }
        let mut record = Record::new(None);
        if let Some(instance) = self.instance {
            record.id = instance;
        }
        let path = baton_proto::path::join(&self.path, &name);
        let stored = self.layout.encode(id, data, &record);
        let instance = (self.layout == GroupLayout::Native).then_some(record.id);
        let node = PersistentNode::start_as(&self.client, &path, stored, instance)?;
        self.announce(&node);
        Ok(Registration {
            node,
            id: id.to_owned(),
            layout: self.layout,
            record,
        })
    }

    /// Lets the views know of a registration of ours.
    fn announce(&self, node: &PersistentNode) {
        self.own.add(node.control());
        let mut states = node.control().subscribe();
        let own = Arc::clone(&self.own);
        node.runtime().spawn(async move {
            while states.changed().await.is_ok() {
                own.changed();
            }
            own.changed();
        });
    }

    /// Returns the present members, sorted by node name. Registrations of this handle or its clones
    /// are listed only while they are in force. A member whose node this client may not read is
    /// left out: [`Membership::roll`] names it.
    ///
    /// # Errors
    /// As [`Membership::roll`].
    pub async fn members(&self) -> Result<Vec<Member>, MemberError> {
        Ok(self.roll().await?.members.to_vec())
    }

    /// Returns the present members, as the first update of a view, with the nodes that this client
    /// may not read.
    ///
    /// # Errors
    /// [`MemberError::View`], also where we may not read the group itself. It waits as long as
    /// there is no connection.
    pub async fn roll(&self) -> Result<GroupUpdate, MemberError> {
        let mut view = self.updates()?;
        let refused = view.refused();
        tokio::select! {
            biased;
            update = view.next() => update,
            error = refused => Err(error.into()),
        }
    }

    /// Returns a live view of the members. It survives lost connections and sessions; members that
    /// left meanwhile are reported afterwards.
    ///
    /// # Errors
    /// [`MemberError::View`] outside a tokio runtime.
    pub fn updates(&self) -> Result<GroupView, MemberError> {
        Ok(GroupView::new(self.layout, self.cache()?, &self.own))
    }

    fn cache(&self) -> Result<TreeCache, MemberError> {
        Ok(TreeCache::builder(&self.client, &self.path)?
            .max_depth(1)
            .pass_over_unreadable()
            .start()?)
    }
}

impl Registration {
    /// The member's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the registration's node: its path and its state.
    pub fn node(&self) -> &PersistentNode {
        &self.node
    }

    /// Waits until the member is registered: see [`PersistentNode::registered`].
    ///
    /// # Errors
    /// [`MemberError::Closed`], [`MemberError::Superseded`].
    pub async fn registered(&self) -> Result<ActiveRegistration, MemberError> {
        self.node.registered().await
    }

    /// Changes the member's data, in the background: see [`PersistentNode::set_data`].
    ///
    /// # Errors
    /// [`MemberError::NoRoom`].
    pub fn set_data(&self, data: &[u8]) -> Result<(), MemberError> {
        if !self.layout.has_room() {
            let path = baton_proto::path::parent(self.node.path()).to_owned();
            return Err(MemberError::NoRoom { path });
        }
        let stored = self.layout.encode(&self.id, data, &self.record);
        self.node.set_data(&stored);
        Ok(())
    }

    /// Leaves the group, and waits until the node is certainly gone. Dropping the registration
    /// leaves in the background.
    pub async fn leave(self) {
        self.node.close().await;
    }
}
