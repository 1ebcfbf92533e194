//! Options of all handles that wait in a queue, each declared once.

/// Declares the options and the path of a handle whose [`Acquisition`](super::Acquisition) is in
/// this field.
macro_rules! acquisition_options {
    ($acquisition:ident) => {
        /// Sets the name of this program in the data of its nodes, which `baton lock show` and the
        /// console print.
        #[must_use]
        pub fn name(mut self, name: &str) -> Self {
            self.$acquisition.name = Some(std::sync::Arc::from(name));
            self
        }

        /// Sets the process id to record in place of this program's, where it acts for another
        /// process of this machine.
        #[must_use]
        pub fn pid(mut self, pid: u32) -> Self {
            self.$acquisition.pid = Some(pid);
            self
        }

        crate::options::acl_option!($acquisition.client);

        /// Reports the queue position of an acquire of this handle in `progress`. Use it for one
        /// acquire at a time.
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
