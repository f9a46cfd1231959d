// Package yaml reads YAML and JSON as a stream of events, in memory that does
// not depend on the size of the document.
//
// # What is read
//
// [Reader] reads the first document of a stream: YAML 1.1 with the leniencies
// that most implementations have, and JSON. Keys, values and elements come as
// events in the order of the text. Scalars are text: numbers, booleans and null
// are not interpreted, nor are tags, nor is the merge key "<<". Tags are given
// as they are spelled, without regard to %TAG. An alias gives the events of what
// its anchor stands for. Duplicate keys are given as often as they come.
//
// What follows the root node is not read: a second document, and any other text
// that cannot belong to it, as when lines are to the left of the first. An empty
// document has no events; one that has nothing but "---" has a [Null].
//
// The text is UTF-8, with or without a byte order mark. Line breaks are LF, CR,
// CR LF, NEL, LS and PS. Invalid UTF-8, control characters, U+FFFE and U+FFFF
// are errors where they stand; what comes before them is given.
//
// A document whose first character besides white space is { or [ may be JSON:
// NEL, LS and PS are ordinary characters within its double quotes, control
// characters from U+007F on and U+FFFE are allowed, and an escape of half a
// surrogate pair is U+FFFD.
//
// # Limits
//
// A Reader holds a buffer of 64 KiB, one scalar, a stack of open collections and
// what has anchors. [Limits] bound the depth of the stack, also for what aliases
// stand for; the bytes of a scalar; the bytes of what has anchors, of which all
// aliases together may give 16 times as much. Further:
//
//   - a simple key in block context, and the key of a pair in a flow sequence,
//     begins at most 4096 bytes before its ":" and on its line;
//   - names of anchors and tags have at most 1024 bytes;
//   - keys are scalars: a collection as key is an error, as is an alias of one;
//   - an alias cannot be within what it stands for;
//   - UTF-16 and UTF-32 are not read.
//
// Errors are of type [*Error]: the line, from 1, and the problem, with at most
// 40 bytes of the document in quotes. Errors of the underlying reader are wrapped.
// After an error every call returns it.
//
// # Differences from go.yaml.in/yaml/v3
//
// Every document that yaml.v3 decodes into a Node gives the same tree, except
// that here these are errors: the limits above, UTF-16, a node with two anchors
// or two tags, properties at the root that no node follows, and a ":" after a
// root node in flow style. A byte order mark within the document is text.
//
// These are accepted here and are errors there:
//
//   - the escapes \/ and, for characters beyond U+FFFF, pairs of \u escapes;
//   - in a flow mapping a ":" on another line than its key, keys of any length,
//     and in a flow sequence "?" with an empty key;
//   - what JSON allows, as above;
//   - directives of all kinds and versions, which are passed over up to "---",
//     handles of tags that no %TAG declares, and any "%" within tags;
//   - tabs in lines that are blank or have only a comment;
//   - keys of 1024 to 4096 bytes in block context;
//   - any text after the root node.
package yaml
