//! Pictures of graphs.
#![allow(clippy::unwrap_used)] // A test fails by panicking.

use policy::Policy;

const SITE: &str = "
Port<0-7> lan; Port<8> wan; Port<9> dmz;
Proxy p; NAT n; FW f;
pipelet web { lan [tcp && dst port < 81] -> p; p -> n; }
pipelet rest {
  lan [dst ip 192.0.2.0/24] <-> f;
  lan <-> n <-> wan;
  f [f.safe] <-> dmz;
  f -> Drop;
}
";

fn policy(text: &str) -> Policy {
    Policy::read("site.rvl", text, &mut |_| Err(String::new())).map_err(|report| report.to_string()).unwrap()
}

#[test]
fn text_lists_edges_in_the_order_in_which_they_are_tried() {
    let expected = "\
lan (ports 0-7)
  ├── tcp && dst port < 81 ─> p
  ├<─ dst ip 192.0.2.0/24 ─> f
  └<─> n
p (Proxy)
  └──> n
f (FW)
  ├<─ f.safe ─> dmz
  └──> Drop
n (NAT)
  └<─> wan
";
    assert_eq!(policy(SITE).graph_text(&[]), expected);
}

#[test]
fn svg_has_every_node_and_filter_and_is_well_formed() {
    let svg = policy(SITE).graph_svg(&[]);
    for text in [">lan<", ">ports 0-7<", ">wan<", ">dmz<", ">p<", ">Proxy<", ">Drop<", ">f.safe<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(svg.contains("tcp &amp;&amp; dst port &lt; 81"));
    assert_eq!(svg.matches("marker-start").count(), 4, "edges with two heads");
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert_eq!(svg, policy(SITE).graph_svg(&[]));
}

#[test]
fn a_graph_without_edges_is_an_empty_picture() {
    let none = policy("Port<0> a;");
    assert_eq!(none.graph_text(&[]), "");
    assert!(none.graph_svg(&[]).ends_with("</svg>\n"));
}

#[test]
fn notes_stand_beside_their_edges() {
    let policy = policy("Port<0> a; Port<1> b; M m; pipelet { a [tcp] <-> m -> b; }");
    let graph = policy.graph();
    let notes = graph.all_edges().map(|edge| format!("{:?} of {:?} & more", edge.direction, edge.from));
    let notes: Vec<String> = notes.collect();
    let expected = "\
a (port 0)
  └<─ tcp ─> m  Forward of Port(0) & more, back Reverse of Nf(0) & more
m (M)
  └──> b  Forward of Nf(0) & more
";
    assert_eq!(policy.graph_text(&notes), expected);
    let svg = policy.graph_svg(&notes);
    assert!(svg.contains(">Forward of Port(0) &amp; more, back Reverse of Nf(0) &amp; more<"), "{svg}");
    assert_eq!(svg.matches("filter note").count(), 2);
}
