//! The context `dev`, by which other commands find the servers of `baton dev` while it runs.

use std::path::PathBuf;

use toml::Value;

use crate::exit::Failure;
use crate::servers::config_file;
use crate::servers::lookup::{self, Files};
use crate::servers::machine::Machine;

/// The name of the context.
pub(super) const NAME: &str = "dev";

/// The file of the context; removed when this is dropped, unless another `baton dev` has replaced
/// it.
#[derive(Debug)]
pub(super) struct DevContext {
    file: PathBuf,
    text: String,
}

impl DevContext {
    /// Writes the context; `None`: the user has no home, or another context of this name.
    pub(super) fn make(servers: &str) -> Result<Option<Self>, Failure> {
        let Some(file) = lookup::dev_file() else {
            return Ok(None);
        };
        let files = Files::of(&Machine::this()?)?;
        let own = files.user().map(config_file::read_existing).transpose()?;
        let own = own.flatten().map(|(_, config)| config);
        if lookup::context_of(NAME, own.as_slice()).is_some() {
            return Ok(None);
        }
        let text = format!("[context.{NAME}]\nservers = {}\n", Value::from(servers));
        config_file::replace(&file, &text).map_err(|error| {
            Failure::baton(format!(
                "cannot write {}: {error}; use --servers",
                file.display()
            ))
        })?;
        Ok(Some(Self { file, text }))
    }
}

impl Drop for DevContext {
    fn drop(&mut self) {
        if std::fs::read_to_string(&self.file).is_ok_and(|text| text == self.text) {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}
