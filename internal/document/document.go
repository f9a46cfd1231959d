// Package document reads streams of documents strictly. It knows of YAML, JSON,
// objects and lists of objects, and nothing of what they mean.
//
// A [Stream] yields the objects of a file: YAML documents, JSON values that
// follow each other, and the items of lists. A defect of the syntax ends with
// its document. Each value is a [Node], which keeps its line.
//
// A [Decoder] fills a Go value from a node as the schema of an API server
// would have it. What Go types do not say, a [Rule] and a table of [Fact] do.
//
//	stream, err := document.Open(file, r)
//	for o := range stream.Objects(nil) {
//		if o.Group != "example.dev" || o.Type != "Thing" {
//			continue
//		}
//		var thing Thing
//		dec := stream.Decoder(nil)
//		dec.Decode(o.Node, &thing, "")
//		var found document.Findings
//		found.Examine(&thing, facts)
//		dec.Adopt(&found)
//		stream.Note(stream.Place(&dec.Findings, o.Node, o.Name(o.Type, "default"))...)
//	}
//	return stream.Err()
//
// Every defect is an [Error] that names file, line, document, object, field and
// rule, with control characters replaced: up to 100 of an object and 1000 of a
// stream, and as many warnings.
//
// Limits: a stream has at most [MaxStream] bytes, a document [MaxDocument]; it
// nests at most 200 levels deep and holds at most 524288 values or 16 MiB of
// text, where those that an alias repeats are counted each time. Time and
// memory are linear in the text.
package document

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of what is read.
const (
	MaxStream   = 64 << 20 // bytes of one stream
	MaxDocument = 3 << 20  // bytes of one document, as an API server has it
	MaxErrors   = 1000     // of one stream, and as many warnings
)

var errLargeDocument = fmt.Errorf("larger than %d MiB: split it", MaxDocument>>20)

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
	warned int // warnings that Warn was given
}

// Open reads a stream of YAML documents or JSON values within its limit. File
// is the name that errors have. The error is an [Error].
func Open(file string, r io.Reader) (*Stream, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxStream+1))
	if err != nil {
		err = fmt.Errorf("read documents: %w", err)
	} else if len(text) > MaxStream {
		err = fmt.Errorf("larger than %d MiB: split the stream", MaxStream>>20)
	}
	if err != nil {
		return nil, &Error{File: file, Err: err}
	}
	return &Stream{file: file, text: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))}, nil
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
	for _, e := range found.Errors {
		e.File, e.Document = s.file, s.number
		if e.Line == 0 {
			e.Line = n.LineOf(e.Field)
		}
	}
	slices.SortStableFunc(found.Errors, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return found.Of(object)
}

// Warn completes warnings as Place does. Of a stream it returns [MaxErrors] and
// one that says that there are more.
func (s *Stream) Warn(found *Findings, n *Node, object string) []error {
	room := MaxErrors - s.warned
	out := s.Place(found, n, object)
	if s.warned += len(out); len(out) <= room {
		return out
	}
	if room < 0 {
		return nil
	}
	s.warned++ // so that it is said once
	return append(out[:room], &Error{File: s.file, Err: fmt.Errorf("more than %d warnings: the rest is not told", MaxErrors)})
}

// full notes once that too much is wrong to go on.
func (s *Stream) full() bool {
	if len(s.errs) <= MaxErrors {
		return false
	}
	s.errs = append(s.errs[:MaxErrors], &Error{File: s.file, Err: fmt.Errorf("more than %d defects: the rest was not read", MaxErrors)})
	return true
}

// Documents yields what the documents hold, objects or not, and notes those
// that cannot be parsed.
func (s *Stream) Documents() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for text, before := range chunks(s.text) {
			for next := s.read(text, before); ; {
				n, err := next()
				if err == io.EOF {
					break
				}
				if err == nil && n.Kind == Null {
					continue
				}
				s.number++
				if err != nil {
					e, ok := err.(*Error)
					if !ok {
						e = &Error{Err: err}
					}
					s.Note(&Error{File: s.file, Document: s.number, Line: cmp.Or(e.Line, before+1), Err: e.Err})
				} else if !yield(n) {
					return
				}
				if s.full() {
					return
				}
				if err != nil {
					break
				}
			}
		}
	}
}

// marker is the end of a line and what begins a YAML document on the next.
var marker = regexp.MustCompile(`\n---(?:[ \t\r\n]|\z)`)

// chunks splits a stream at its markers, so that a defect of the syntax ends
// with its document. It yields the text of each and the lines before it.
func chunks(text []byte) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		for before := 0; len(text) > 0; {
			end := len(text)
			if next := marker.FindIndex(text); next != nil {
				end = next[0] + 1
			}
			if !yield(text[:end], before) {
				return
			}
			before += bytes.Count(text[:end], []byte("\n"))
			text = text[end:]
		}
	}
}

// blank reports whether a text holds nothing but comments, directives and markers.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		rest := bytes.TrimSpace(line)
		if len(rest) > 0 && rest[0] != '#' && line[0] != '%' && string(rest) != "---" && string(rest) != "..." {
			return false
		}
	}
	return true
}

// read returns a function that returns the values of a text and then io.EOF.
// Text that looks like JSON and is not is YAML, whose flow style looks alike.
func (s *Stream) read(text []byte, before int) (next func() (*Node, error)) {
	if blank(text) {
		return func() (*Node, error) { return nil, io.EOF }
	}
	if first := bytes.TrimSpace(text)[0]; (first == '{' || first == '[') && (strings.HasSuffix(s.file, ".json") || beginsWithJSON(text)) {
		return newJSONReader(text, before+1).next
	}
	if len(text) > MaxDocument {
		return func() (*Node, error) { return nil, errLargeDocument }
	}
	return (&yamlReader{dec: yaml.NewDecoder(bytes.NewReader(text)), before: before}).next
}

// beginsWithJSON reports whether the first value of a text is JSON, or too large or deep to be any.
func beginsWithJSON(text []byte) bool {
	_, err := newJSONReader(text, 1).next()
	return err == nil || err == errDeep || err == errLarge || err == errLargeDocument
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
	if of != nil && n.At("apiVersion") == nil && n.At("kind") == nil {
		full := *n // merges may share n, which stays as it is
		full.Fields = append(slices.Clip(n.Fields),
			Field{"apiVersion", n.Line, &Node{Kind: Text, Text: of.APIVersion()}},
			Field{"kind", n.Line, &Node{Kind: Text, Text: of.Type}})
		n = &full
	}
	apiVersion, kind := n.StringAt("apiVersion"), n.StringAt("kind")
	if apiVersion == "" || kind == "" {
		s.untyped(n, apiVersion, kind)
		return true
	}
	group, version, found := strings.Cut(apiVersion, "/")
	if !found && !strings.Contains(apiVersion, ".") {
		group, version = "", apiVersion // the core group has a version only; with a dot it is a group without one
	}
	item := Object{n, group, version, strings.TrimSuffix(kind, listSuffix)}
	switch {
	case apiVersion == "v1" && kind == listSuffix:
		of = nil
	case item.Type != kind && item.Type != "" && lists != nil && lists(item):
		of = &item
	default:
		return yield(Object{n, group, version, kind})
	}
	items := n.At("items")
	switch {
	case items == nil || items.Kind == Null:
		return true
	case items.Kind != List:
		s.Fail(items, "", "items must be a list, not %s", items.Kind)
		return true
	}
	for _, item := range items.Items {
		if len(s.errs) > MaxErrors {
			return true // Documents ends it
		}
		if !s.walk(item, of, lists, yield) {
			return false
		}
	}
	return true
}

// noObject judges a document that is no mapping.
func (s *Stream) noObject(n *Node) {
	switch {
	case n.Kind != List:
		s.Fail(n, "", "the document is %s, not an object", n.Kind)
	case slices.ContainsFunc(n.Items, func(item *Node) bool { return item.At("kind") != nil && item.At("apiVersion") != nil }):
		s.Fail(n, "", "objects in a bare list: put them under items of an object with apiVersion v1 and kind List")
	default:
		s.Other(Object{Node: n})
	}
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

// An Other is a document that the reader of a stream has no use for.
type Other struct {
	File       string `json:"file"`
	Line       int    `json:"line"`
	Document   int    `json:"document"`
	APIVersion string `json:"apiVersion,omitempty"` // "" of a document that is no object
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	Source     string `json:"source,omitempty"` // KIND/NAME of spec.sourceRef
	List       bool   `json:"list,omitempty"`   // no mapping
}

// String returns FILE:LINE KIND/NAME, and the source that the document names.
func (o Other) String() string {
	what := o.Kind + "/" + o.Name
	if o.Kind == "" {
		what = "no object"
	}
	if o.Source != "" {
		what += " of " + o.Source
	}
	return printable(fmt.Sprintf("%s:%d %s", o.File, o.Line, shorten(what, maxObject)))
}

// Other notes a document that is passed over, the first [MaxErrors] with what they are.
func (s *Stream) Other(o Object) {
	if s.Skipped++; s.Skipped > MaxErrors {
		return
	}
	out := Other{File: s.file, Line: o.Line, Document: s.number, Kind: o.Type, List: o.Node.Kind == List}
	if o.Type != "" {
		out.APIVersion = o.APIVersion()
		out.Namespace, out.Name = o.StringAt("metadata", "namespace"), o.StringAt("metadata", "name")
		if kind := o.StringAt("spec", "sourceRef", "kind"); kind != "" {
			out.Source = kind + "/" + o.StringAt("spec", "sourceRef", "name")
		}
	}
	s.Others = append(s.Others, out)
}

// A Known is a group and version whose documents are read, with their kinds.
type Known struct {
	Group, Version string
	Kinds          []string
}

// Near returns what the author of an object that is not read probably meant,
// "" when that is another kind of object: a kind or a group that differs in two
// letters, a kind without its group, or one with the end of its group.
func Near(o Object, known []Known) string {
	for _, k := range known {
		kind := slices.Contains(k.Kinds, o.Type)
		switch {
		case o.Group == k.Group && !kind:
			for _, name := range k.Kinds {
				if near(strings.ToLower(o.Type), strings.ToLower(name)) {
					return "kind " + name
				}
			}
		case o.Group == k.Group && o.Version != k.Version,
			o.Group != "" && o.Group != k.Group && near(o.Group, k.Group),
			kind && o.Group == "" && k.Group != "",
			kind && strings.Contains(o.Group, ".") && strings.HasSuffix(k.Group, "."+o.Group):
			return "apiVersion " + Object{Group: k.Group, Version: k.Version}.APIVersion()
		}
	}
	return ""
}

// near reports whether a and b differ in at most two letters.
func near(a, b string) bool {
	const most = 2
	return max(len(a), len(b))-min(len(a), len(b)) <= most && Distance(a, b) <= most
}

// Distance returns how many bytes have to be inserted, removed or replaced to
// make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
