package source

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Set is what streams of documents hold. The zero value is an empty set.
// It is a [Secrets] as well: that of the Secret and ServiceAccount documents.
type Set struct {
	Objects  []Object          // in the order of the documents
	Secrets  map[string]Secret // Secret documents by NAMESPACE/NAME
	Skipped  int               // documents of foreign kinds
	Warnings []error           // deprecated fields, conflicting refs: each a *DocumentError

	places   map[string]string   // by KIND/NAMESPACE/NAME: where the document is
	accounts map[string][]string // by NAMESPACE/NAME: the pull secrets of a ServiceAccount
	sealed   map[string]string   // by NAMESPACE/NAME: why a Secret document cannot be read
}

// Decode reads the documents of file into s: YAML documents, JSON values, or
// lists (kind List) of either. Objects of the groups [Group] and
// [ReferenceGroup] and v1 Secret and ServiceAccount documents are kept;
// documents of other kinds, and those that are no objects at all, are counted
// in s.Skipped.
//
// Objects come out as an API server would hand them out: checked (see
// [Validate]), with defaults filled in (see [Default]) and kinds in the
// specification's spelling. The error joins one *DocumentError for each
// defect, up to 100 of an object and 1000 of the stream; good objects are in s
// all the same.
func (s *Set) Decode(file string, r io.Reader) error {
	text, err := readStream(r)
	if err != nil {
		return &DocumentError{File: file, Err: err}
	}
	d := &decoding{set: s, file: file, types: make(structTypes)}
	for c := range chunks(text) {
		if d.chunk(c); len(d.errs) > maxErrors {
			d.errs = append(d.errs[:maxErrors], &DocumentError{File: file, Err: errManyErrors})
			break
		}
	}
	return errors.Join(d.errs...)
}

// decoding is the reading of one stream.
type decoding struct {
	set    *Set
	file   string
	number int // of the document
	errs   []error
	types  structTypes
}

// chunk files the documents of a chunk.
func (d *decoding) chunk(c chunk) {
	for n, err := range c.nodes(d.file) {
		switch {
		case err != nil:
			d.number++
			d.syntax(err, c.line)
		case n.kind != nullNode:
			d.number++
			d.document(n, nil)
		}
		if len(d.errs) > maxErrors {
			return
		}
	}
}

// syntax notes a document that cannot be parsed.
func (d *decoding) syntax(err error, line int) {
	if at := (*lineError)(nil); errors.As(err, &at) {
		line = at.line
	}
	d.errs = append(d.errs, &DocumentError{File: d.file, Document: d.number, Line: line, Err: err})
}

// fail notes what is wrong with a document as a whole.
func (d *decoding) fail(n *node, object, format string, args ...any) {
	d.errs = append(d.errs, &DocumentError{
		File: d.file, Document: d.number, Line: n.line, Object: object, Err: fmt.Errorf(format, args...),
	})
}

// place completes findings about n with where they are and orders them by line.
func (d *decoding) place(found []*DocumentError, n *node, object string) []error {
	var out []error
	for _, e := range found {
		e.File, e.Document, e.Object = d.file, d.number, object
		if e.Line == 0 {
			e.Line = n.lineAt(e.Field)
		}
	}
	slices.SortStableFunc(found, func(a, b *DocumentError) int { return cmp.Compare(a.Line, b.Line) })
	for _, e := range found {
		out = append(out, e)
	}
	return out
}

// document files one document. In a list of one kind, of says which.
func (d *decoding) document(n *node, of *listOf) {
	if n.kind != mapNode {
		d.noObject(n)
		return
	}
	n = of.complete(n)
	apiVersion, kind := n.str("apiVersion"), n.str("kind")
	group, version, _ := strings.Cut(apiVersion, "/")
	switch {
	case apiVersion == "" || kind == "":
		d.untyped(n, apiVersion, kind)
	case group == Group || group == ReferenceGroup:
		d.ours(n, group, version, kind)
	default:
		d.foreign(n, group, kind)
	}
}

// foreign files a document of another group: what our objects need, and lists.
func (d *decoding) foreign(n *node, group, kind string) {
	switch [2]string{group, kind} {
	case [2]string{"v1", listSuffix}: // the core group has a version only
		d.list(n, nil)
	case [2]string{"v1", "SecretList"}, [2]string{"v1", "ServiceAccountList"}:
		d.list(n, &listOf{group, strings.TrimSuffix(kind, listSuffix)})
	case [2]string{"v1", "Secret"}:
		d.secret(n)
	case [2]string{"v1", "ServiceAccount"}:
		d.account(n)
	case [2]string{"bitnami.com", "SealedSecret"}:
		d.sealedSecret(n)
	default:
		d.set.Skipped++
	}
}

// A listOf says what the items of a list are that do not say it themselves.
type listOf struct{ apiVersion, kind string }

// complete returns an item with what its list says of it. Aliases may share n,
// which stays as it is.
func (l *listOf) complete(n *node) *node {
	if l == nil || n.get("apiVersion") != nil || n.get("kind") != nil {
		return n
	}
	full := *n
	full.fields = append(slices.Clip(n.fields),
		field{"apiVersion", n.line, &node{kind: textNode, text: l.apiVersion}},
		field{"kind", n.line, &node{kind: textNode, text: l.kind}})
	return &full
}

func (d *decoding) list(n *node, of *listOf) {
	items := n.get("items")
	switch {
	case items == nil || items.kind == nullNode:
	case items.kind != listNode:
		d.fail(items, "", "items must be a list, not %s", items.kind)
	default:
		for _, item := range items.items {
			if len(d.errs) > maxErrors {
				return
			}
			d.document(item, of)
		}
	}
}

// noObject judges a document that is no mapping.
func (d *decoding) noObject(n *node) {
	if n.kind != listNode {
		d.fail(n, "", "the document is %s, not an object", n.kind)
		return
	}
	for _, item := range n.items {
		if item.get("kind") != nil && item.get("apiVersion") != nil {
			d.fail(n, "", "objects in a bare list: put them under items of an object with apiVersion v1 and kind List")
			return
		}
	}
	d.set.Skipped++
}

// untyped judges a document without apiVersion or kind: a values file is
// skipped, an object with a slip is not.
func (d *decoding) untyped(n *node, apiVersion, kind string) {
	missing := "apiVersion and kind are"
	switch {
	case apiVersion != "":
		missing = "kind is"
	case kind != "":
		missing = "apiVersion is"
	case n.get("metadata") == nil || n.get("spec") == nil:
		d.set.Skipped++
		return
	}
	d.fail(n, kind, "%s required, as a string", missing)
}

// ours files a document of one of the groups of this package.
func (d *decoding) ours(n *node, group, version, name string) {
	k, of := spelledKind(name), (*listOf)(nil)
	if k == nil {
		if item := strings.TrimSuffix(name, listSuffix); item != name && spelledKind(item) != nil {
			k, of = spelledKind(item), &listOf{group + "/" + version, item}
		}
	}
	object := documentName(n, name)
	switch {
	case k == nil && calledKind(name) != nil:
		d.fail(n, object, "unknown kind %s: did you mean %s?", quote(name), calledKind(name).spell(group))
	case k == nil:
		d.fail(n, object, "unknown kind %s of group %s", quote(name), group)
	case version == notServed:
		d.fail(n, object, "version v1beta1 is no longer read: set apiVersion to %s/v1 and see what validation says", group)
	case k.in&versionSet(version) == 0:
		d.fail(n, object, "%s does not exist in version %s: set apiVersion to %s/v1", k.spell(group), quote(version), group)
	case of != nil:
		d.list(n, of)
	default:
		d.object(n, k, name)
	}
}

// documentName returns KIND/NAMESPACE/NAME as far as the document says it.
func documentName(n *node, kind string) string {
	name := n.str("metadata", "name")
	or(&name, "?")
	return kind + "/" + documentNamespace(n) + "/" + name
}

func documentNamespace(n *node) string {
	space := n.str("metadata", "namespace")
	or(&space, DefaultNamespace)
	return space
}
