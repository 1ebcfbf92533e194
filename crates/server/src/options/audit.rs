//! The settings of the audit record: whether there is one, where it goes, and how much of it is
//! kept.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::StartError;

/// Destination of the audit record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AuditTo {
    /// Nowhere: there is none.
    #[default]
    Off,
    /// To the log of the server, with the level `info`.
    Log,
    /// To this file, which only the server's user can read.
    File(PathBuf),
}

impl FromStr for AuditTo {
    type Err = String;

    /// `off`, `log`, or the path of a file. A single word is refused, since it may be a slip of the
    /// pen: `./audit` names a file of that name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "log" => Ok(Self::Log),
            path if path.contains(['/', '.']) => Ok(Self::File(path.into())),
            _ => Err(format!(
                "'{text}' does not say where the audit record goes; write off, log or a file, like ./audit.log"
            )),
        }
    }
}

impl fmt::Display for AuditTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Log => f.write_str("log"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The form of a line of the audit record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuditFormat {
    /// `name=value` with tabs in between, as ZooKeeper writes it.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

impl FromStr for AuditFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!(
                "'{text}' is not a format of the audit record; write text or json"
            )),
        }
    }
}

impl fmt::Display for AuditFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// The record of who did what: one line for each change, and for each act that has to do with
/// identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// Destination. Default: none.
    pub to: AuditTo,
    /// The form of its lines. Default: text.
    pub format: AuditFormat,
    /// Bytes after which the next file is begun. Default: 64 MiB.
    pub max_bytes: u64,
    /// Number of older files that are kept beside the present one. Default: 10.
    pub files: usize,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            to: AuditTo::Off,
            format: AuditFormat::Text,
            max_bytes: 64 << 20,
            files: 10,
        }
    }
}

impl AuditOptions {
    /// The fewest bytes of a file: more than the longest line.
    pub(crate) const LEAST_BYTES: u64 = 64 << 10;
    /// The most older files.
    const MOST_FILES: usize = 1000;

    /// Refuses what is not possible.
    ///
    /// # Errors
    /// [`StartError::Setting`] names the setting and what to do.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let refuse = |setting, remedy| Err(StartError::Setting { setting, remedy });
        if matches!(&self.to, AuditTo::File(path) if path.file_name().is_none()) {
            return refuse("audit", "must be off, log or the path of a file");
        }
        if self.max_bytes < Self::LEAST_BYTES {
            return refuse("audit_max_bytes", "must be at least 65,536");
        }
        if !(1..=Self::MOST_FILES).contains(&self.files) {
            return refuse("audit_files", "must lie between 1 and 1,000");
        }
        Ok(())
    }
}
