//! Errors that all recipes have in common: [`CommonError`], and the trait that yields it.

// Owns the variants that several recipes have: `recipe_error!` is the one place that says what
// fields, documentation and text they have. A recipe adds only the words in which it differs.

use std::time::Duration;

use baton_client::{ConnectError, LeaseError};

use crate::lost_reason::LostReason;
use crate::time_limit::WaitReason;

/// The errors that all recipes share: see [`RecipeError::common`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommonError<'a> {
    /// A path was refused before anything was sent. Correct the path.
    BadPath {
        /// The path as given.
        path: &'a str,
        /// The error.
        why: &'a str,
    },
    /// The time was up.
    TimedOut {
        /// The recipe's path.
        path: &'a str,
        /// The time that was allowed.
        limit: Duration,
        /// The missing thing: other participants, or an answer of the servers.
        waited_for: &'a WaitReason,
    },
    /// No session could be opened.
    Connect {
        /// The recipe's path.
        path: &'a str,
        /// The reason.
        source: &'a ConnectError,
    },
    /// The server refused an operation, or the client could not send it.
    Client {
        /// The recipe's path.
        path: &'a str,
        /// Error of the client.
        source: &'a baton_client::Error,
    },
    /// It is not known whether a change was applied. Read before deciding.
    OutcomeUnknown {
        /// The path of what was to be changed.
        path: &'a str,
        /// Reason why there is no answer.
        source: &'a baton_client::Error,
    },
    /// The session's lease cannot be kept soundly.
    Lease {
        /// The recipe's path.
        path: &'a str,
        /// The reason.
        source: &'a LeaseError,
    },
    /// The hold has ended.
    Lost {
        /// The path of what was held.
        path: &'a str,
        /// Cause of the end.
        reason: LostReason,
    },
}

impl<'a> CommonError<'a> {
    /// The common error of a client's error: an operation whose outcome is open counts as that.
    pub(crate) fn of_client(path: &'a str, source: &'a baton_client::Error) -> Self {
        if source.is_maybe_applied() {
            Self::OutcomeUnknown { path, source }
        } else {
            Self::Client { path, source }
        }
    }

    /// This error, with an open outcome apart, as [`CommonError::of_client`] has it.
    pub(crate) fn resolved(self) -> Self {
        match self {
            Self::Client { path, source } => Self::of_client(path, source),
            other => other,
        }
    }
}

/// Trait of the errors of all recipes, and of [`Error`](crate::Error).
///
/// ```
/// use baton::error::{CommonError, RecipeError};
///
/// /// Whether the caller may try again, whatever recipe has failed.
/// fn is_transient(error: &impl RecipeError) -> bool {
///     use CommonError::{Connect, Lost, TimedOut};
///     matches!(
///         error.common(),
///         Some(TimedOut { .. } | Connect { .. } | Lost { .. })
///     )
/// }
/// ```
pub trait RecipeError: std::error::Error {
    /// Returns the error where it is one that recipes have in common; `None` where only this recipe
    /// has it.
    fn common(&self) -> Option<CommonError<'_>>;
}

/// Declares the error of a recipe: the shared variants that it names, then its own variants.
///
/// A shared variant takes the words that are the recipe's:
/// `BadPath("not a legal path for a lock")`, `TimedOut("not acquired", "somebody else holds it")`,
/// and what stands before the client's text, as in `Connect("not acquired: ")`; nothing stands
/// there where it is left out. A comment before it follows the documentation that all recipes have.
///
/// The enum gets a constructor for each shared variant, and `shared_variant`, which is
/// [`RecipeError::common`] for them.
macro_rules! recipe_error {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            shared { $($shared:tt)* }
            $($own:tt)*
        }
    ) => {
        $crate::common_error::recipe_error! {
            @collect ($(#[$meta])* $name { $($own)* }) {} {} {} $($shared)*
        }
    };

    (
        @collect $family:tt { $($variants:tt)* } { $($arms:tt)* } { $($makers:tt)* }
        $(#[$more:meta])* BadPath($not_legal:tt), $($shared:tt)*
    ) => {
        $crate::common_error::recipe_error! {
            @collect $family
            {
                $($variants)*
                /// The path was refused before anything was sent. Correct the path.
                $(#[$more])*
                #[error("{path:?}: {}: {why}", $not_legal)]
                BadPath {
                    /// The path as given.
                    path: String,
                    /// The error.
                    why: String,
                },
            }
            {
                $($arms)*
                Self::BadPath { path, why } => {
                    Some($crate::common_error::CommonError::BadPath { path, why })
                }
            }
            {
                $($makers)*
                pub(crate) fn bad_path(path: &str, why: String) -> Self {
                    Self::BadPath { path: path.to_owned(), why }
                }
            }
            $($shared)*
        }
    };

    (
        @collect $family:tt { $($variants:tt)* } { $($arms:tt)* } { $($makers:tt)* }
        $(#[$more:meta])* TimedOut($not_done:tt, $others:tt), $($shared:tt)*
    ) => {
        $crate::common_error::recipe_error! {
            @collect $family
            {
                $($variants)*
                /// The time was up.
                $(#[$more])*
                #[error("{path}: {} within {limit:?}: {}", $not_done, .waited_for.because($others))]
                TimedOut {
                    /// The recipe's path.
                    path: String,
                    /// The time that was allowed.
                    limit: ::std::time::Duration,
                    /// The missing thing: other participants, or an answer of the servers.
                    waited_for: $crate::time_limit::WaitReason,
                },
            }
            {
                $($arms)*
                Self::TimedOut { path, limit, waited_for } => {
                    let limit = *limit;
                    Some($crate::common_error::CommonError::TimedOut { path, limit, waited_for })
                }
            }
            {
                $($makers)*
                pub(crate) fn timed_out(
                    path: &str,
                    limit: ::std::time::Duration,
                    waited_for: $crate::time_limit::WaitReason,
                ) -> Self {
                    Self::TimedOut { path: path.to_owned(), limit, waited_for }
                }
            }
            $($shared)*
        }
    };

    (
        @collect $family:tt $variants:tt $arms:tt $makers:tt
        $(#[$more:meta])* Connect $(($before:tt))?, $($shared:tt)*
    ) => {
        $crate::common_error::recipe_error! {
            @source $family $variants $arms $makers
            (#[doc = " No session could be opened."] $(#[$more])*)
            Connect connect(::baton_client::ConnectError, $($before)?), $($shared)*
        }
    };

    (
        @collect $family:tt $variants:tt $arms:tt $makers:tt
        $(#[$more:meta])* Client $(($before:tt))?, $($shared:tt)*
    ) => {
        $crate::common_error::recipe_error! {
            @source $family $variants $arms $makers
            (#[doc = " The server refused an operation, or the client could not send it."] $(#[$more])*)
            Client client(::baton_client::Error, $($before)?), $($shared)*
        }
    };

    (
        @collect $family:tt $variants:tt $arms:tt $makers:tt
        $(#[$more:meta])* Lease $(($before:tt))?, $($shared:tt)*
    ) => {
        $crate::common_error::recipe_error! {
            @source $family $variants $arms $makers
            (#[doc = " The session's lease cannot be kept soundly."] $(#[$more])*)
            Lease lease(::baton_client::LeaseError, $($before)?), $($shared)*
        }
    };

    (
        @source $family:tt { $($variants:tt)* } { $($arms:tt)* } { $($makers:tt)* }
        ($($docs:tt)*) $name:ident $maker:ident($source:ty, $($before:tt)?), $($shared:tt)*
    ) => {
        $crate::common_error::recipe_error! {
            @collect $family
            {
                $($variants)*
                $($docs)*
                #[error("{path}: {}{source}", concat!($($before)?))]
                $name {
                    /// The path of the recipe, or of its node.
                    path: String,
                    /// The reason.
                    r#source: $source,
                },
            }
            {
                $($arms)*
                Self::$name { path, source } => {
                    Some($crate::common_error::CommonError::$name { path, source }.resolved())
                }
            }
            {
                $($makers)*
                pub(crate) fn $maker(path: &str, source: $source) -> Self {
                    Self::$name { path: path.to_owned(), source }
                }
            }
            $($shared)*
        }
    };

    (
        @collect ($(#[$meta:meta])* $name:ident { $($own:tt)* })
        { $($variants:tt)* } { $($arms:tt)* } { $($makers:tt)* }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($variants)*
            $($own)*
        }

        #[allow(dead_code, reason = "not every recipe makes each of its errors by name")]
        impl $name {
            $($makers)*

            /// Returns the shared error of a variant; `None` for the recipe's own.
            fn shared_variant(&self) -> Option<$crate::common_error::CommonError<'_>> {
                match self {
                    $($arms)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use recipe_error;
