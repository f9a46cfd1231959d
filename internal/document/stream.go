package document

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// A Stream is the reading of the documents of one file. It collects what is
// wrong with them, up to [MaxErrors] defects.
type Stream struct {
	// Skipped counts the documents that are no objects, and those that Other noted.
	Skipped int
	Others  []Other // the first [MaxErrors] of them

	file   string
	text   []byte
	number int // of the document
	errs   []error
	warned int // warnings that Warn returned
	types  structTypes
}

// Open reads a stream of YAML documents or JSON values within its limit. File
// is the name that errors have. The error is an [Error].
func Open(file string, r io.Reader) (*Stream, error) {
	text, err := readStream(r)
	if err != nil {
		return nil, &Error{File: file, Err: err}
	}
	return &Stream{file: file, text: text, types: make(structTypes)}, nil
}

// Err returns what was found wrong so far, joined.
func (s *Stream) Err() error { return errors.Join(s.errs...) }

// File returns the name of the file.
func (s *Stream) File() string { return s.file }

// Number returns the number of the document being read, 1 for the first.
func (s *Stream) Number() int { return s.number }

// Note adds to what Err returns.
func (s *Stream) Note(errs ...error) { s.errs = append(s.errs, errs...) }

// Fail notes what is wrong with a value of the document being read.
func (s *Stream) Fail(n *Node, object, format string, args ...any) {
	s.Note(&Error{File: s.file, Document: s.number, Line: n.Line, Object: object, Err: fmt.Errorf(format, args...)})
}

// Place completes findings about n, which is in the document being read, with
// where they are, and orders them by line.
func (s *Stream) Place(found *Findings, n *Node, object string) []error {
	var out []error
	for _, e := range found.Errors {
		e.File, e.Document, e.Object = s.file, s.number, object
		if e.Line == 0 {
			e.Line = n.LineOf(e.Field)
		}
	}
	slices.SortStableFunc(found.Errors, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	for _, e := range found.Errors {
		out = append(out, e)
	}
	return out
}

// Warn completes warnings as Place does. Of a stream it returns [MaxErrors] and
// one that says that there are more.
func (s *Stream) Warn(found *Findings, n *Node, object string) []error {
	if s.warned > MaxErrors {
		return nil
	}
	out := s.Place(found, n, object)
	if s.warned += len(out); s.warned > MaxErrors {
		out = append(out[:len(out)-(s.warned-MaxErrors)], &Error{File: s.file, Err: errManyWarnings})
	}
	return out
}

// full notes once that too much is wrong to go on.
func (s *Stream) full() bool {
	if len(s.errs) > MaxErrors {
		s.errs = append(s.errs[:MaxErrors], &Error{File: s.file, Err: errManyErrors})
		return true
	}
	return false
}

// Documents yields what the documents hold, objects or not, and notes those
// that cannot be parsed.
func (s *Stream) Documents() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for c := range chunks(s.text) {
			for n, err := range c.nodes(s.file) {
				if err != nil {
					s.number++
					s.syntax(err, c.line)
				} else if n.Kind != Null {
					s.number++
					if !yield(n) {
						return
					}
				}
				if s.full() {
					return
				}
			}
		}
	}
}

// syntax notes a document that cannot be parsed.
func (s *Stream) syntax(err error, line int) {
	if at := (*lineError)(nil); errors.As(err, &at) {
		line = at.line
	}
	s.Note(&Error{File: s.file, Document: s.number, Line: line, Err: err})
}

// An Object is a document, or an item of a list, that says what it is.
type Object struct {
	*Node
	Group, Version string // of apiVersion; v1 has no group
	Type           string // its kind
}

// APIVersion returns apiVersion as the object has it.
func (o Object) APIVersion() string {
	return strings.TrimPrefix(o.Group+"/"+o.Version, "/")
}

// Name returns KIND/NAMESPACE/NAME as far as the object says it, with kind for KIND.
func (o Object) Name(kind, namespace string) string {
	return kind + "/" + cmp.Or(o.StringAt("metadata", "namespace"), namespace) + "/" + cmp.Or(o.StringAt("metadata", "name"), "?")
}

const listSuffix = "List"

// Objects yields the objects of the stream, those in lists (kind List of v1)
// among them. Lists says whether the list of one kind, such as a CanaryList
// for the kind Canary, is to be taken apart as well; it may be nil. Documents
// that are no objects are counted in Skipped; those that look like one and do
// not say what they are are defects.
func (s *Stream) Objects(lists func(item Object) bool) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for n := range s.Documents() {
			if !s.walk(n, nil, lists, yield) {
				return
			}
		}
	}
}

// walk yields the objects in n, which may lack what its list says of it. It
// returns false when there is to be no more.
func (s *Stream) walk(n *Node, of *Object, lists func(Object) bool, yield func(Object) bool) bool {
	if n.Kind != Map {
		s.noObject(n)
		return true
	}
	n = complete(n, of)
	o := Object{Node: n, Type: n.StringAt("kind")}
	apiVersion := n.StringAt("apiVersion")
	if apiVersion == "" || o.Type == "" {
		s.untyped(n, apiVersion, o.Type)
		return true
	}
	var found bool
	if o.Group, o.Version, found = strings.Cut(apiVersion, "/"); !found && !strings.Contains(apiVersion, ".") {
		o.Group, o.Version = "", apiVersion // the core group has a version only; with a dot it is a group without one
	}
	item := o
	item.Type = strings.TrimSuffix(o.Type, listSuffix)
	switch {
	case apiVersion == "v1" && o.Type == listSuffix:
		return s.items(n, nil, lists, yield)
	case item.Type != o.Type && item.Type != "" && lists != nil && lists(item):
		return s.items(n, &item, lists, yield)
	}
	return yield(o)
}

// items yields the objects of a list.
func (s *Stream) items(n *Node, of *Object, lists func(Object) bool, yield func(Object) bool) bool {
	items := n.At("items")
	switch {
	case items == nil || items.Kind == Null:
	case items.Kind != List:
		s.Fail(items, "", "items must be a list, not %s", items.Kind)
	default:
		for _, item := range items.Items {
			if len(s.errs) > MaxErrors {
				return true // documents ends it
			}
			if !s.walk(item, of, lists, yield) {
				return false
			}
		}
	}
	return true
}

// complete returns an item with what its list says of it. Merges may share n,
// which stays as it is.
func complete(n *Node, of *Object) *Node {
	if of == nil || n.At("apiVersion") != nil || n.At("kind") != nil {
		return n
	}
	full := *n
	full.Fields = append(slices.Clip(n.Fields),
		Field{"apiVersion", n.Line, &Node{Kind: Text, Text: of.APIVersion()}},
		Field{"kind", n.Line, &Node{Kind: Text, Text: of.Type}})
	return &full
}

// noObject judges a document that is no mapping.
func (s *Stream) noObject(n *Node) {
	if n.Kind != List {
		s.Fail(n, "", "the document is %s, not an object", n.Kind)
		return
	}
	for _, item := range n.Items {
		if item.At("kind") != nil && item.At("apiVersion") != nil {
			s.Fail(n, "", "objects in a bare list: put them under items of an object with apiVersion v1 and kind List")
			return
		}
	}
	s.Other(Object{Node: n})
}

// untyped judges a document without apiVersion or kind: a values file is
// skipped, an object with a slip is not.
func (s *Stream) untyped(n *Node, apiVersion, kind string) {
	missing := "apiVersion and kind are"
	switch {
	case kind == "" && !strings.Contains(apiVersion, "/") && n.At("metadata") == nil: // such as Chart.yaml
		s.Other(Object{Node: n})
		return
	case apiVersion != "":
		missing = "kind is"
	case kind != "":
		missing = "apiVersion is"
	case n.At("metadata") == nil || n.At("spec") == nil:
		s.Other(Object{Node: n})
		return
	}
	s.Fail(n, kind, "%s required, as a string", missing)
}
