//! Error codes (protocol.md §1.5) and what each means to the one who reads it. Owns the numbers and
//! the words; which layer may retry what is the client's decision.

use std::fmt;

/// Declares the codes: a row is `NUMBER Variant: "explanation";`, with the protocol's name in
/// parentheses where the variant has another.
macro_rules! error_codes {
    (@name $variant:ident) => { stringify!($variant) };
    (@name $variant:ident $name:literal) => { $name };
    ($($code:literal $variant:ident $(($name:literal))?: $explanation:literal;)*) => {
        /// Error code of a reply.
        ///
        /// Displays as the protocol's name and an explanation, on one line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(
                #[doc = concat!(stringify!($code), ": ", $explanation, ".")]
                $variant,
            )*
            /// A code that this version does not know, as it came.
            Unknown(i32),
        }

        impl ErrorCode {
            /// Every known code.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$variant),*];

            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> i32 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(code) => code,
                }
            }

            /// The code that a number stands for.
            #[must_use]
            pub const fn from_code(code: i32) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    unknown => Self::Unknown(unknown),
                }
            }

            /// The protocol's name, such as `NoNode`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => error_codes!(@name $variant $($name)?),)*
                    Self::Unknown(_) => "Unknown",
                }
            }

            /// Meaning of the code and, where it helps, what to do.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self {
                    $(Self::$variant => $explanation,)*
                    Self::Unknown(_) => "a code that this version does not know",
                }
            }
        }
    };
}

error_codes! {
    0 Ok: "no error";
    -1 SystemError: "the server failed; try another server, and look at its log";
    -2 RuntimeInconsistency: "not tried, because another part of the transaction failed";
    -3 DataInconsistency: "the server found its own data inconsistent; look at its log";
    -4 ConnectionLoss: "the connection was lost and the outcome is not known";
    -5 MarshallingError: "the server could not decode the request";
    -6 Unimplemented: "the server does not know or does not allow this operation";
    -7 OperationTimeout: "the operation took too long and the outcome is not known";
    -8 BadArguments: "an argument breaks the protocol's rules; most often the path";
    -12 UnknownSession: "the server does not know the session";
    -13 NewConfigNoQuorum: "no quorum of the new configuration is connected and in sync";
    -14 ReconfigInProgress: "another reconfiguration is in progress; try again when it has ended";
    -100 ApiError ("APIError"): "an error of the operation itself";
    -101 NoNode: "the znode does not exist";
    -102 NoAuth:
        "the ACL does not allow this to the connection's identities; authenticate, or change the ACL";
    -103 BadVersion: "the znode's version is not the expected one";
    -108 NoChildrenForEphemerals: "an ephemeral cannot have children";
    -110 NodeExists: "the znode exists already";
    -111 NotEmpty: "the znode has children; delete them first";
    -112 SessionExpired: "the session has expired and its ephemerals are gone; open a new one";
    -113 InvalidCallback: "a callback of the wrong kind was given";
    -114 InvalidAcl ("InvalidACL"):
        "the ACL is empty or has an entry that is not valid for its scheme";
    -115 AuthFailed: "the credentials were refused; they will not become valid by a retry";
    -118 SessionMoved: "the session has moved to another server; use the newer connection";
    -119 NotReadOnly: "the server is cut off from its ensemble and serves reads only";
    -120 EphemeralOnLocalSession: "a local session cannot own ephemerals";
    -121 NoWatcher: "this connection has no such watch";
    -122 RequestTimeout: "the request took too long and the outcome is not known";
    -123 ReconfigDisabled: "reconfiguration is disabled on the server";
    -124 SessionClosedRequireSaslAuth: "the server requires authentication before anything else";
    -125 QuotaExceeded: "the subtree's quota does not allow this; raise it or delete something";
    -127 ThrottledOp: "the server is overloaded and did not take the operation; try again later";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "Unknown({code}): {}", self.explanation()),
            known => write!(f, "{}: {}", known.name(), known.explanation()),
        }
    }
}

impl std::error::Error for ErrorCode {}
