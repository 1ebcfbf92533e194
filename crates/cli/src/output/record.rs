//! Results in JSON: named values, in the order in which they are given.

use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An object with the values of one result, each as its text: a parsed one would sort its fields.
#[derive(Debug, Default)]
pub(crate) struct JsonRecord(Vec<(&'static str, Option<Box<RawValue>>)>);

impl JsonRecord {
    pub(crate) fn put(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        // Results have no maps with other keys than text, without which this does not fail.
        self.0.push((name, to_raw_value(value).ok()));
    }
}

impl Serialize for JsonRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Makes a [`JsonRecord`] as the fields of a struct are written. A value behind `?name` is an
/// option, and is left out where there is none.
macro_rules! record {
    (@put $record:ident) => {};
    (@put $record:ident ? $name:ident: $value:expr $(, $($rest:tt)*)?) => {
        if let Some(value) = &$value {
            $record.put(stringify!($name), value);
        }
        $crate::output::record::record! { @put $record $($($rest)*)? }
    };
    (@put $record:ident $name:ident: $value:expr $(, $($rest:tt)*)?) => {
        $record.put(stringify!($name), &$value);
        $crate::output::record::record! { @put $record $($($rest)*)? }
    };
    (@put $record:ident ? $name:ident $(, $($rest:tt)*)?) => {
        $crate::output::record::record! { @put $record ? $name: $name $(, $($rest)*)? }
    };
    (@put $record:ident $name:ident $(, $($rest:tt)*)?) => {
        $crate::output::record::record! { @put $record $name: $name $(, $($rest)*)? }
    };
    ($($fields:tt)*) => {{
        let mut record = $crate::output::record::JsonRecord::default();
        $crate::output::record::record! { @put record $($fields)* }
        record
    }};
}
pub(crate) use record;

#[cfg(test)]
mod tests {
    #[test]
    fn values_keep_their_order_and_an_option_without_one_is_left_out() {
        let (path, none) = ("/b", None::<u8>);
        let record = record! { path, ?none, a: 1_u8, ?session: Some(7), since: none, names: ["x"] };
        let text = serde_json::to_string(&record).unwrap();
        let wanted = r#"{"path":"/b","a":1,"session":7,"since":null,"names":["x"]}"#;
        assert_eq!(text, wanted);
        let outer = serde_json::to_string(&record! { z: 1, record }).unwrap();
        assert_eq!(outer, format!(r#"{{"z":1,"record":{wanted}}}"#));
    }
}
