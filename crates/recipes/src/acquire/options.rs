//! Options that every handle has which waits in a queue: each is declared once.

/// Declares the options and the path of a handle whose [`Acquisition`](super::Acquisition) is in
/// this field.
macro_rules! acquisition_options {
    ($acquisition:ident) => {
        /// Sets the name of this program in the data of its nodes, for people who want to see who
        /// holds and who waits.
        #[must_use]
        pub fn name(mut self, name: &str) -> Self {
            self.$acquisition.name = Some(std::sync::Arc::from(name));
            self
        }

        /// The process to show in place of this one, where this program acts for another one on
        /// this machine.
        #[must_use]
        pub fn pid(mut self, pid: u32) -> Self {
            self.$acquisition.pid = Some(pid);
            self
        }

        crate::options::acl_option!($acquisition.client);

        /// Shows in `progress` the queue position of an acquire of this handle. Let only one at a
        /// time use it.
        #[must_use]
        pub fn progress(mut self, progress: &$crate::acquire::WaitProgress) -> Self {
            self.$acquisition.progress = Some(progress.clone());
            self
        }

        /// The path of this handle.
        #[must_use]
        pub fn path(&self) -> &str {
            &self.$acquisition.path
        }
    };
}

pub(crate) use acquisition_options;
