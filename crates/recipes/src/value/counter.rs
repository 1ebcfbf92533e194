//! A counter that several processes share.
//!
//! Owns the loop of an addition. An addition happens once, or its caller receives that it is not
//! known (H77).

use baton_client::{Client, Data};
use bytes::Bytes;

use super::cell::{Cell, ExpectedNode};
use super::counter_layout::CounterLayout;
use super::error::ValueError;
use super::shared_value::{SharedValue, Values};
use crate::options::acl_option;

/// A number at a path of the tree. An absent node is 0.
///
/// Cheap to clone. It holds no more than one number: for many writers at once, give each a counter
/// of its own and add them up when reading. The layout of side nodes is that of [`SharedValue`].
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tickets = baton::Counter::new(&client, "/tickets")?;
/// let mine = tickets.add(1).await?;
/// println!("ticket {mine} of {}", tickets.get().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    cell: Cell,
    layout: CounterLayout,
}

impl Counter {
    /// A counter at `path`, as decimal text. Nothing is sent.
    ///
    /// # Errors
    /// [`ValueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValueError> {
        Ok(Self {
            cell: Cell::new(client, path)?,
            layout: CounterLayout::default(),
        })
    }

    /// Sets the format of another library, to share the counter with its processes.
    #[must_use]
    pub fn layout(mut self, layout: CounterLayout) -> Self {
        self.layout = layout;
        self
    }

    acl_option!(cell.client);

    /// The counter's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.cell.path
    }

    /// The number.
    ///
    /// # Errors
    /// [`ValueError::NotANumber`], [`ValueError::Connect`], [`ValueError::Client`].
    pub async fn get(&self) -> Result<i64, ValueError> {
        self.read().await.map(|(value, _)| value)
    }

    /// Adds `delta`, once, and returns the sum. When this returns `Ok`, the addition happened
    /// exactly once, whatever became of connections on the way. Dropped half-way, an addition that
    /// was sent stays.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] where the session ended before the outcome was known: then it
    /// happened once or not at all. Else nothing was added.
    pub async fn add(&self, delta: i64) -> Result<i64, ValueError> {
        loop {
            let (value, expected) = self.read().await?;
            let sum = value.checked_add(delta);
            let data = sum.and_then(|sum| self.layout.encode(sum));
            let (Some(sum), Some(data)) = (sum, data) else {
                return Err(self.out_of_range(i128::from(value) + i128::from(delta)));
            };
            if self.cell.write(expected, &data).await? {
                return Ok(sum);
            }
        }
    }

    /// Sets the counter to `value`, whatever the node holds.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] as [`Counter::add`], [`ValueError::OutOfRange`]; else nothing was
    /// written.
    pub async fn set(&self, value: i64) -> Result<(), ValueError> {
        let data = self.encode(value)?;
        self.cell
            .write(ExpectedNode::Anything, &data)
            .await
            .map(|_| ())
    }

    /// Sets the counter to `value` if it is `expected`; otherwise writes nothing and returns
    /// `false`.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] as [`Counter::add`], [`ValueError::OutOfRange`]; else nothing was
    /// written.
    pub async fn compare_and_set(&self, expected: i64, value: i64) -> Result<bool, ValueError> {
        let data = self.encode(value)?;
        loop {
            let (now, version) = self.read().await?;
            if now != expected {
                return Ok(false);
            }
            if self.cell.write(version, &data).await? {
                return Ok(true);
            }
        }
    }

    /// Returns a stream of the number's changes: see [`Values::next`].
    ///
    /// # Errors
    /// [`ValueError::View`] outside a tokio runtime.
    pub fn values(&self) -> Result<Numbers, ValueError> {
        let values = SharedValue::new(&self.cell.client, self.path())?.values()?;
        Ok(Numbers {
            values,
            counter: self.clone(),
        })
    }

    async fn read(&self) -> Result<(i64, ExpectedNode), ValueError> {
        match self.cell.read().await? {
            None => Ok((0, ExpectedNode::Absent)),
            Some(Data { data, stat }) => {
                Ok((self.decode(&data)?, ExpectedNode::Version(stat.version)))
            }
        }
    }

    fn decode(&self, data: &[u8]) -> Result<i64, ValueError> {
        self.layout
            .decode(data)
            .ok_or_else(|| ValueError::NotANumber {
                path: self.path().to_owned(),
                layout: self.layout,
                bytes: data.len(),
            })
    }

    fn encode(&self, value: i64) -> Result<Bytes, ValueError> {
        self.layout
            .encode(value)
            .ok_or_else(|| self.out_of_range(value.into()))
    }

    fn out_of_range(&self, number: i128) -> ValueError {
        ValueError::OutOfRange {
            path: self.path().to_owned(),
            layout: self.layout,
            number,
        }
    }
}

/// Stream of a counter's changes. Dropping it removes its watch.
#[derive(Debug)]
pub struct Numbers {
    values: Values,
    counter: Counter,
}

impl Numbers {
    /// Returns the present number at first, and later each change. As [`Values::next`]; an absent
    /// node is 0.
    ///
    /// # Errors
    /// [`ValueError::NotANumber`], after which asking again is allowed; [`ValueError::View`] once
    /// the client is closed.
    pub async fn next(&mut self) -> Result<i64, ValueError> {
        match self.values.next().await? {
            Some(value) => self.counter.decode(&value.data),
            None => Ok(0),
        }
    }
}
