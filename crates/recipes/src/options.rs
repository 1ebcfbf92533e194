//! Options that handles of several recipes have: each is declared once.

/// Declares the option `acl` of a handle, whose client is at this path of fields.
macro_rules! acl_option {
    ($($field:ident).+) => {
        /// The ACL of every node that this handle creates, missing parents included. Default: open
        /// to everybody. Give all who use the path the same, and the permissions that they need:
        /// all but `ADMIN`. Nodes that exist already keep theirs.
        #[must_use]
        pub fn acl(mut self, acl: &[baton_client::Acl<'_>]) -> Self {
            self.$($field).+ = self.$($field).+.with_acl(acl);
            self
        }
    };
}

pub(crate) use acl_option;
