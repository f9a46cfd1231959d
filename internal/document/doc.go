// Package document reads streams of documents strictly. It knows of YAML, JSON,
// objects and lists of objects, and nothing of what they mean.
//
// A [Stream] yields the objects of a file: YAML documents, JSON values that
// follow each other, and the items of lists. A defect of the syntax ends with
// its document. Each value is a [Node], which keeps its line.
//
// A [Decoder] fills a Go value from a node as the schema of an API server
// would have it. What Go types do not say, a [Rule] does.
//
//	stream, err := document.Open(file, r)
//	for o := range stream.Objects(nil) {
//		if o.Group != "example.dev" || o.Type != "Thing" {
//			continue
//		}
//		var thing Thing
//		dec := stream.Decoder(nil)
//		dec.Decode(o.Node, &thing, "")
//		if thing.Spec.Size < 1 {
//			dec.Add("spec.size", "must be positive")
//		}
//		stream.Note(stream.Place(&dec.Findings, o.Node, o.Name(o.Type, "default"))...)
//	}
//	return stream.Err()
//
// Every defect is an [Error] that names file, line, document, object, field and
// rule, with control characters replaced: up to 100 of an object and 1000 of a
// stream, and as many warnings.
//
// Limits: a stream has at most [MaxStream] bytes, a document [MaxDocument]; it
// nests at most 200 levels deep and holds at most 524288 values and 16 MiB of
// their text, where those that an alias repeats are counted each time. Time and
// memory are linear in the text.
package document
