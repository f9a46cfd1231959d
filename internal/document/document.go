// Package document reads streams of documents strictly. It knows YAML, JSON, objects and
// lists of objects, but not what they mean.
//
// A [Stream] yields the objects of a file: YAML documents, JSON values that follow each
// other, and the items of lists. A syntax error affects only its document. Each value is a
// [Node], which keeps its line.
//
// A [Decoder] fills a Go value from a node as the schema of an API server would. A [Rule]
// and a table of [Fact] add what Go types cannot express.
//
//	stream, err := document.Open(file, r)
//	for o := range stream.Objects() {
//		if o.Group != "example.dev" || o.Type != "Thing" {
//			continue
//		}
//		var thing Thing
//		dec := new(document.Decoder)
//		dec.Decode(o.Node, &thing, "")
//		var found document.Findings
//		found.Examine(&thing, facts)
//		dec.Adopt(&found)
//		stream.Note(stream.Place(&dec.Findings, o.Node, o.Name(o.Type, "default"))...)
//	}
//	return stream.Err()
//
// Every defect is an [Error] that names file, line, document, object, field and rule, with
// control characters replaced. There are up to 100 defects of an object and 1000 of a
// stream, and as many warnings.
//
// A stream has at most [MaxStream] bytes, a document [MaxDocument]. A document nests at
// most 200 levels deep and holds at most 524288 values or 16 MiB of text, where values that
// an alias repeats count each time. Time and memory are linear in the text.
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
)

// Limits of a stream.
const (
	MaxStream   = 64 << 20 // bytes of one stream
	MaxDocument = 3 << 20  // bytes of one document, the limit of API servers
	MaxErrors   = 1000     // defects of one stream, and as many warnings
)

// A Stream reads the documents of one file. It collects their defects, up to [MaxErrors].
type Stream struct {
	// Skipped counts the documents that are not objects, and those passed to Skip.
	Skipped int
	Others  []Other // the first [MaxErrors] of them

	File   string // name of the file
	Number int    // of the document being read, 1 for the first

	text   []byte
	errs   []error
	warned int // warnings passed to Warn
}

// Open reads a stream of YAML documents or JSON values, at most [MaxStream] bytes. file is
// the name of the stream in errors. The error is an [Error].
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
	return &Stream{File: file, text: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))}, nil
}

// Err returns the defects noted so far, joined.
func (s *Stream) Err() error { return errors.Join(s.errs...) }

// Note adds errors to those that Err returns.
func (s *Stream) Note(errs ...error) { s.errs = append(s.errs, errs...) }

// Fail notes a defect of a value in the document being read.
func (s *Stream) Fail(n *Node, object, format string, args ...any) {
	s.Note(&Error{File: s.File, Document: s.Number, Line: n.Line, Object: object, Err: fmt.Errorf(format, args...)})
}

// Locate adds the location to findings about n, which is in the document being read, and
// sorts them by line.
func (s *Stream) Locate(found *Findings, n *Node, object string) []error {
	for _, e := range found.Errors {
		e.File, e.Document = s.File, s.Number
		if e.Line == 0 {
			e.Line = n.lineOf(e.Field, n.Line)
		}
	}
	slices.SortStableFunc(found.Errors, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return found.ErrorsFor(object)
}

// Warn completes warnings as Locate does. For a stream it returns at most [MaxErrors], and
// then one that says that there are more: objects that share a body by alias multiply
// warnings.
func (s *Stream) Warn(found *Findings, n *Node, object string) []error {
	out := s.Locate(found, n, object)
	room := MaxErrors - s.warned
	if s.warned += len(out); s.warned <= MaxErrors || room < 0 {
		return out[:max(min(len(out), room), 0)]
	}
	s.warned++ // report this only once
	return append(out[:room], &Error{File: s.File, Err: fmt.Errorf("more than %d warnings: the rest is not shown", MaxErrors)})
}

// tooManyDefects reports whether there are too many defects to continue, and notes this once.
func (s *Stream) tooManyDefects() bool {
	if len(s.errs) <= MaxErrors {
		return false
	}
	s.errs = append(s.errs[:MaxErrors], &Error{File: s.File, Err: fmt.Errorf("more than %d defects: the rest was not read", MaxErrors)})
	return true
}

// Documents yields the values of the documents, objects or not, and notes the documents
// that cannot be parsed.
func (s *Stream) Documents() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		rest, before, text := s.text, 0, []byte(nil)
		for ; len(rest) > 0; before += bytes.Count(text, []byte("\n")) {
			text, rest = rest, nil
			if next := marker.FindIndex(text); next != nil { // a syntax error affects only its document
				text, rest = text[:next[0]+1], text[next[0]+1:]
			}
			if blank(text) {
				continue
			}
			for n, err := range read(text, before, strings.HasSuffix(s.File, ".json")) {
				if err == nil && n.Kind == Null {
					continue
				}
				s.Number++
				if err != nil {
					e, ok := err.(*Error)
					if !ok {
						e = &Error{Err: err}
					}
					s.Note(&Error{File: s.File, Document: s.Number, Line: cmp.Or(e.Line, before+1), Err: e.Err})
				} else if !yield(n) {
					return
				}
				if s.tooManyDefects() {
					return
				}
			}
		}
	}
}

// marker matches the end of a line, and the beginning of a YAML document on the next.
var marker = regexp.MustCompile(`\n---(?:[ \t\r\n]|\z)`)

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

// An Object is a document, or an item of a list, that has apiVersion and kind.
type Object struct {
	*Node
	Group, Version string // of apiVersion; v1 has no group
	Type           string // its kind
}

// APIVersion returns the apiVersion of the object.
func (o Object) APIVersion() string {
	return strings.TrimPrefix(o.Group+"/"+o.Version, "/")
}

// Name returns KIND/NAMESPACE/NAME, with kind for KIND. If the object has no namespace, it
// is namespace; a missing name is "?".
func (o Object) Name(kind, namespace string) string {
	return kind + "/" + cmp.Or(o.StringAt("metadata", "namespace"), namespace) + "/" + cmp.Or(o.StringAt("metadata", "name"), "?")
}

// Objects yields the objects of the stream, including those in lists (kind List of v1, or a
// kind such as CanaryList). Documents that are not objects are counted in Skipped. A
// document that looks like an object but lacks apiVersion or kind is a defect.
func (s *Stream) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for n := range s.Documents() {
			if !s.walk(n, nil, yield) {
				return
			}
		}
	}
}

// walk yields the objects in n. An item of a list may lack apiVersion and kind, which its
// list gives then. walk returns false to stop the iteration.
func (s *Stream) walk(n *Node, of *Object, yield func(Object) bool) bool {
	if of != nil && n.Kind == Map && n.At("apiVersion") == nil && n.At("kind") == nil {
		full := *n // merges may share n, so it must not change
		full.Fields = append(slices.Clip(n.Fields),
			Field{"apiVersion", n.Line, &Node{Kind: Text, Text: of.APIVersion()}},
			Field{"kind", n.Line, &Node{Kind: Text, Text: of.Type}})
		n = &full
	}
	apiVersion, kind := n.StringAt("apiVersion"), n.StringAt("kind")
	if apiVersion == "" || kind == "" {
		s.skipNonObject(n, apiVersion, kind)
		return true
	}
	group, version, found := strings.Cut(apiVersion, "/")
	if !found && !strings.Contains(apiVersion, ".") {
		group, version = "", apiVersion // the core group has a version only; with a dot it is a group without one
	}
	of = nil
	items := n.At("items")
	item, list := strings.CutSuffix(kind, "List")
	switch {
	case !list || item != "" && (items == nil || items.Kind != List):
		return yield(Object{n, group, version, kind})
	case item != "":
		of = &Object{n, group, version, item}
	case items == nil || items.Kind == Null:
		return true
	case items.Kind != List:
		s.Fail(items, "", "items must be a list, not %s", items.Kind)
		return true
	}
	for _, item := range items.Items {
		if len(s.errs) > MaxErrors {
			return true // Documents stops
		}
		if !s.walk(item, of, yield) {
			return false
		}
	}
	return true
}

// skipNonObject skips a document that is not an object, such as a values file. A document that
// looks like an object but lacks apiVersion or kind is a defect.
func (s *Stream) skipNonObject(n *Node, apiVersion, kind string) {
	object := func(n *Node) bool { return n.At("kind") != nil && n.At("apiVersion") != nil }
	metadata := n.At("metadata") != nil
	switch {
	case n.Kind == List && slices.ContainsFunc(n.Items, object):
		s.Fail(n, "", "objects in a bare list: put them under items of an object with apiVersion v1 and kind List")
	case n.Kind != Map && n.Kind != List:
		s.Fail(n, "", "the document is %s, not an object", n.Kind)
	case kind != "":
		s.Fail(n, kind, "apiVersion is required, as a string")
	case strings.Contains(apiVersion, "/") || apiVersion != "" && metadata: // a Chart.yaml has apiVersion v2 and no metadata
		s.Fail(n, "", "kind is required, as a string")
	case metadata && n.At("spec") != nil:
		s.Fail(n, "", "apiVersion and kind are required, as a string")
	default:
		s.Skip(Object{Node: n})
	}
}

// An Other is a document that the reader of a stream does not use.
type Other struct {
	File       string `json:"file"`
	Line       int    `json:"line"`
	Document   int    `json:"document"`
	APIVersion string `json:"apiVersion,omitempty"` // "" if the document is not an object
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	Source     string `json:"source,omitempty"` // KIND/NAME of spec.sourceRef
	List       bool   `json:"list,omitempty"`   // the document is a list
}

// String returns FILE:LINE KIND/NAME, and the source that the document names.
func (o Other) String() string {
	label := o.Kind + "/" + o.Name
	if o.Kind == "" {
		label = "no object"
	}
	if o.Source != "" {
		label += " of " + o.Source
	}
	return printable(fmt.Sprintf("%s:%d %s", o.File, o.Line, shorten(label, maxObject)))
}

// Skip counts a skipped document. It describes the first [MaxErrors] of them in Others.
func (s *Stream) Skip(o Object) {
	if s.Skipped++; s.Skipped > MaxErrors {
		return
	}
	out := Other{File: s.File, Line: o.Line, Document: s.Number, Kind: o.Type, List: o.Node.Kind == List}
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

// Suggest returns what the author of an unknown object probably meant: a kind or a group that
// differs in at most two letters, a kind without its group, or one with only the end of its
// group. It returns "" if the object is of another kind.
func Suggest(o Object, known []Known) string {
	for _, k := range known {
		kind := slices.Contains(k.Kinds, o.Type)
		switch {
		case o.Group == k.Group && !kind:
			for _, name := range k.Kinds {
				if isSimilar(strings.ToLower(o.Type), strings.ToLower(name)) {
					return "kind " + name
				}
			}
		case o.Group == k.Group && o.Version != k.Version,
			o.Group != "" && o.Group != k.Group && isSimilar(o.Group, k.Group),
			kind && o.Group == "" && k.Group != "",
			kind && strings.Contains(o.Group, ".") && strings.HasSuffix(k.Group, "."+o.Group):
			return "apiVersion " + Object{Group: k.Group, Version: k.Version}.APIVersion()
		}
	}
	return ""
}

// isSimilar reports whether a and b differ in at most two letters.
func isSimilar(a, b string) bool {
	const most = 2
	return max(len(a), len(b))-min(len(a), len(b)) <= most && Distance(a, b) <= most
}

// Distance returns how many bytes must be inserted, removed or replaced to turn a into b.
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

// A Manifest names a kind of objects that is read separately from others in the same
// stream.
type Manifest struct {
	Kind      string
	Groups    []string
	Version   string
	Namespace string // for objects without a namespace
}

// DecodeAll reads the objects of a kind from a stream, including those in lists. It is
// strict, except for the status and the metadata that an API server adds. check notes
// further defects of an object. The error joins all defects, including a second object of
// the same name. The valid objects are returned even if there is an error.
func DecodeAll[T any](file string, r io.Reader, k Manifest, check func(*T, *Findings)) ([]*T, error) {
	s, err := Open(file, r)
	if err != nil {
		return nil, err
	}
	isKind := func(o Object) bool { return o.Type == k.Kind && slices.Contains(k.Groups, o.Group) }
	fromServer := func(path string) Rule {
		return Rule{Ignored: path == "status" || strings.HasPrefix(path, "metadata.")}
	}
	var all []*T
	seen := make(map[string]bool)
	for o := range s.Objects() {
		if !isKind(o) {
			continue
		}
		name := o.Name(k.Kind, k.Namespace)
		if o.Version != k.Version {
			s.Fail(o.Node, name, "version %s is not read: set apiVersion to %s/%s", Quote(o.Version), o.Group, k.Version)
			continue
		}
		v, d, broken := new(T), &Decoder{Rules: fromServer}, Findings{}
		d.Decode(o.Node, v, "")
		check(v, &broken)
		d.Adopt(&broken)
		switch {
		case len(d.Errors) > 0:
			s.Note(s.Locate(&d.Findings, o.Node, name)...)
		case seen[name]:
			s.Fail(o.Node, name, "there is another of this name: rename one")
		default:
			seen[name] = true
			all = append(all, v)
		}
	}
	return all, s.Err()
}
