//! Lists in pages.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// Items of a page, unless the request names another number.
pub const PAGE_DEFAULT: u32 = 100;
/// Limit on the items of a page.
pub const PAGE_MAX: u32 = 1000;

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items, in a fixed order.
    pub items: Vec<T>,
    /// The value of `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The part of a list that a request selects.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Limit on the items, up to 1000.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
    /// Begins after this item: `next` of the page before.
    pub after: Option<String>,
}

/// Checks the limit of a page.
pub(crate) fn limit_of(limit: Option<u32>) -> Result<usize, Problem> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit @ 1..=PAGE_MAX => Ok(limit as usize),
        limit => Err(Problem::invalid(("limit", format!("{limit} is no limit; expected 1 to {PAGE_MAX}")))),
    }
}

impl PageQuery {
    /// Cuts the page out of a whole list; `key` returns an item's value of `after`.
    pub(crate) fn page<T>(&self, items: Vec<T>, key: impl Fn(&T) -> String) -> Result<Page<T>, Problem> {
        let limit = limit_of(self.limit)?;
        let start = match &self.after {
            None => 0,
            Some(after) => match items.iter().position(|item| key(item) == *after) {
                Some(place) => place + 1,
                None => return Err(Problem::invalid(("after", format!("`{after}` is no item of the list")))),
            },
        };
        let has_more = items.len() > start + limit;
        let items: Vec<T> = items.into_iter().skip(start).take(limit).collect();
        let next = items.last().filter(|_| has_more).map(key);
        Ok(Page { items, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(limit: Option<u32>, after: Option<&str>) -> Result<Page<u32>, Problem> {
        let query = PageQuery { limit, after: after.map(str::to_owned) };
        query.page(vec![1, 2, 3], u32::to_string)
    }

    #[test]
    fn pages_make_the_list() {
        assert_eq!(page(Some(2), None).unwrap(), Page { items: vec![1, 2], next: Some("2".to_owned()) });
        assert_eq!(page(Some(2), Some("2")).unwrap(), Page { items: vec![3], next: None });
        assert_eq!(page(None, None).unwrap().next, None);
        assert_eq!(page(Some(3), Some("3")).unwrap(), Page { items: vec![], next: None });
        for (limit, after) in [(Some(0), None), (Some(PAGE_MAX + 1), None), (None, Some("4"))] {
            assert_eq!(page(limit, after).unwrap_err().status, 422);
        }
    }
}
