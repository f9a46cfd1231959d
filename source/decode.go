package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/headgate-io/headgate/internal/document"
)

// Limits of what [Set.Decode] reads.
const (
	MaxStream   = document.MaxStream   // bytes of one stream
	MaxDocument = document.MaxDocument // bytes of one document, as an API server has it
)

// A DocumentError says where an object is wrong and which rule it breaks:
//
//	File     string // name of the file, "-" for standard input; "" for an object made in Go
//	Document int    // 1-based, 0 when it is not about one document
//	Line     int    // of the file, 1-based; 0 when unknown
//	Object   string // KIND/NAMESPACE/NAME as far as known
//	Field    string // path of the field, for example spec.interval
//	Err      error  // the rule, which Unwrap returns
//
// Its text is FILE:LINE: document N: OBJECT: FIELD: RULE, without the parts
// that are not known, and with control characters replaced.
type DocumentError = document.Error

// An Other is a document that a [Set] does not hold: of another kind, or no object.
type Other = document.Other

// quote quotes a value of a document for an error, shortened to 80 bytes.
func quote(s string) string { return document.Quote(s) }

// A Set is what streams of documents hold. The zero value is an empty set.
// It is a [Secrets] as well: that of the Secret and ServiceAccount documents.
type Set struct {
	Objects  []Object          // in the order of the documents
	Invalid  []Invalid         // documents with defects, whose names are known
	Secrets  map[string]Secret // Secret documents by NAMESPACE/NAME
	Skipped  int               // documents of other kinds
	Others   []Other           // the first 1000 of them, of each stream
	Warnings []error           // deprecated fields, conflicting refs: each a *DocumentError

	places   map[string]DocumentError // by KIND/NAMESPACE/NAME: where the document is
	accounts map[string][]string      // by NAMESPACE/NAME: the pull secrets of a ServiceAccount
	unusable map[string]error         // by KIND/NAMESPACE/NAME: why a Secret or ServiceAccount cannot be used
	stored   bool                     // documents are as an API server stores them: with the fields of all versions
	saved    bool                     // documents are those of a ledger, which has what generators make as well
}

// An Invalid is an object whose document has defects.
type Invalid struct {
	Object Object // with what can be read of it
	Err    error  // joins a *DocumentError for each defect
}

// Decode reads the documents of file into s: YAML documents, JSON values, or
// lists (kind List) of either. Objects of the groups [Group] and
// [ReferenceGroup] and v1 Secret and ServiceAccount documents are kept, the
// PkgChart that a cluster would make of spec.chart of a HelmRelease, and an
// [ArtifactGenerator] with the ExternalArtifacts that it makes behind it;
// documents of other kinds, and those that are no objects at all, are counted
// in s.Skipped. A document whose apiVersion or kind differs from one of ours in
// two letters, or has no group, is an error: it would be lost without a word.
//
// Objects come out as an API server would hand them out: checked (see
// [Validate]), with defaults filled in (see [Default]) and kinds in the
// specification's spelling. The error joins one *DocumentError for each
// defect, up to 100 of an object and 1000 of the stream; good objects are in s
// all the same.
func (s *Set) Decode(file string, r io.Reader) error {
	stream, err := document.Open(file, r)
	if err != nil {
		return err
	}
	d := &decoding{Stream: stream, set: s}
	for o := range stream.Objects() {
		switch {
		case o.Group == Group || o.Group == ReferenceGroup || o.Group == GeneratorGroup && o.Type == "ArtifactGenerator":
			d.ours(o)
		case o.Group == releaseGroup && o.Type == "HelmRelease":
			d.release(o)
		case o.APIVersion() == "v1" && o.Type == "Secret":
			d.secret(o)
		case o.APIVersion() == "v1" && o.Type == "ServiceAccount":
			d.account(o)
		case o.Group == "bitnami.com" && o.Type == "SealedSecret":
			d.seal(o, "is a SealedSecret, which only its cluster can decrypt: give its keys as files, environment variables or a Secret document")
		default:
			if meant := document.Near(o, known); meant != "" {
				d.Fail(o.Node, o.Name(o.Type, DefaultNamespace), "%s %s is not known: did you mean %s?", quote(o.APIVersion()), quote(o.Type), meant)
			} else {
				d.Other(o)
			}
		}
	}
	s.Skipped += stream.Skipped
	s.Others = append(s.Others, stream.Others...)
	return stream.Err()
}

// DecodeObject reads one object, in JSON, as an API server hands it out. It is as strict as [Set.Decode], but not
// about the status, of which it takes what it can read: another program may have written that. Fields of v1beta2 count
// in v1 too, because a server that has both stores either as v1. The error joins a
// *DocumentError for each defect. The object is there beside it, with what can be read of it; it is nil
// for a document of another kind.
func DecodeObject(text []byte) (Object, error) {
	var parts map[string]json.RawMessage
	var head Header
	if err := errors.Join(json.Unmarshal(text, &parts), json.Unmarshal(text, &head)); err != nil {
		return nil, err
	}
	k := spelledKind(head.Kind)
	if group := head.Group(); k == nil || group != Group && group != ReferenceGroup {
		return nil, fmt.Errorf("%s %s is not a source", quote(head.APIVersion), quote(head.Kind))
	}
	status := parts["status"]
	delete(parts, "status")
	text, err := json.Marshal(parts)
	if err != nil {
		return nil, err
	}
	set := &Set{stored: true}
	err = set.Decode("", bytes.NewReader(text))
	var obj Object = k.make()
	if len(set.Objects) == 1 {
		obj = set.Objects[0]
	} else {
		_ = json.Unmarshal(text, obj) // err says what is wrong
		obj.Head().spelled = head.Kind
		Default(obj)
	}
	if len(status) > 0 && DecodeStatus(obj, status) != nil {
		status, _ = json.Marshal(readable(obj, status))
		_ = DecodeStatus(obj, status)
	}
	renewRevisions(obj)
	return obj, err
}

// readable returns the fields of a status of obj that can be read.
func readable(obj Object, status []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(status, &fields) // what is no object has none
	for name, value := range fields {
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil || DecodeStatus(obj, one) != nil {
			delete(fields, name)
		}
	}
	return fields
}

// DecodeFS reads the documents of all files below root that end in .yaml,
// .yml or .json, in lexical order, as [Set.Decode] does. Directories whose
// names begin with a dot are passed over, links to directories as well. A
// root that is a file is read whatever its name.
func (s *Set) DecodeFS(fsys fs.FS, root string) error {
	var errs []error
	for name, err := range document.Files(fsys, root) {
		if err == nil {
			err = s.decodeFile(fsys, name)
		}
		for _, err := range document.Split(err) {
			if _, placed := err.(*DocumentError); !placed {
				err = &DocumentError{File: name, Err: err}
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// decodeFile decodes a regular file; its errors but those of Decode do not name it.
func (s *Set) decodeFile(fsys fs.FS, name string) error {
	info, err := fs.Stat(fsys, name)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Decode(name, f)
}

// decoding is the reading of one stream.
type decoding struct {
	*document.Stream
	set *Set
}

// known are the documents that [Set.Decode] reads.
var known = func() []document.Known {
	ours, theirs := document.Known{Group: Group, Version: V1}, document.Known{Group: ReferenceGroup, Version: V1}
	for _, k := range Kinds(Group) {
		ours.Kinds, theirs.Kinds = append(ours.Kinds, k.Name), append(theirs.Kinds, spelledKind(k.Name).reference)
	}
	return []document.Known{{Version: "v1", Kinds: []string{"Secret", "ServiceAccount"}}, ours, theirs,
		{Group: GeneratorGroup, Version: GeneratorVersion, Kinds: []string{"ArtifactGenerator"}}}
}()

// ours files an object of one of the groups of this package.
func (d *decoding) ours(o document.Object) {
	k := spelledKind(o.Type)
	object := o.Name(o.Type, DefaultNamespace)
	switch {
	case k == nil && calledKind(o.Type) != nil:
		d.Fail(o.Node, object, "unknown kind %s: did you mean %s?", quote(o.Type), calledKind(o.Type).spell(o.Group))
	case k == nil:
		d.Fail(o.Node, object, "unknown kind %s of group %s", quote(o.Type), o.Group)
	case cmp.Or(k.group, o.Group) != o.Group:
		d.Fail(o.Node, object, "%s does not exist in group %s: set apiVersion to %s", k.name, o.Group, k.apiVersion(""))
	case o.Version == notServed && !k.exists(notServed):
		d.Fail(o.Node, object, "version v1beta1 is no longer read: set apiVersion to %s/v1 and see what validation says", o.Group)
	case !k.exists(o.Version):
		d.Fail(o.Node, object, "%s does not exist in version %s: set apiVersion to %s", k.spell(o.Group), quote(o.Version), k.apiVersion(o.Group))
	default:
		d.object(o, k)
	}
}

// object files an object of the kind k.
func (d *decoding) object(o document.Object, k *kind) {
	obj := k.make()
	version := o.Version
	if d.set.stored {
		version = ""
	}
	dec := &document.Decoder{Rules: k.rules(version)}
	dec.Decode(o.Node, obj, "")
	for _, r := range dec.Retired {
		carry(obj, r)
	}
	obj.Head().spelled = o.Type
	Default(obj)
	renewRevisions(obj)
	advise(obj, &dec.Warnings)
	g, generator := obj.(*ArtifactGenerator)
	switch filed := d.file(o, o.Name(k.name, DefaultNamespace), dec, check(obj)); {
	case filed && generator && !d.set.saved:
		d.generator(g)
	case filed:
		d.set.Objects = append(d.set.Objects, obj)
	case len(dec.Errors) > 0 && !dec.About("metadata"):
		d.set.Invalid = append(d.set.Invalid, Invalid{obj, errors.Join(dec.Of(o.Name(o.Type, DefaultNamespace))...)})
	}
}

// carry writes what a deprecated field says to the field that replaced it.
func carry(obj Object, r document.Retired) {
	text := r.Value.Text
	if text == "" {
		return
	}
	switch r.Path {
	case "spec.valuesFile":
		spec := &obj.(*PkgChart).Spec
		spec.ValuesFiles = append([]string{text}, spec.ValuesFiles...)
	case "status.artifact.checksum":
		if a := obj.Common().Artifact; a != nil {
			or(&a.Digest, "sha256:"+text)
		}
	case "status.includedArtifacts[].checksum":
		i, all := 0, obj.(*GitRepository).Status.IncludedArtifacts
		if _, err := fmt.Sscanf(r.Field, "status.includedArtifacts[%d]", &i); err == nil && i < len(all) {
			or(&all[i].Digest, "sha256:"+text)
		}
	}
}

// file notes what is wrong with an object, and where it is. It reports whether
// the set is to have it under that name: there is nothing wrong, and no other of
// its name. The warnings about it are kept then.
func (d *decoding) file(o document.Object, name string, dec *document.Decoder, rules *document.Findings) bool {
	spelled := o.Name(o.Type, DefaultNamespace)
	if dec.Adopt(rules); len(dec.Errors) > 0 {
		d.Note(d.Place(&dec.Findings, o.Node, spelled)...)
		return false
	}
	if err := d.set.place(name, DocumentError{File: d.File, Document: d.Number, Line: o.Line, Object: spelled}); err != nil {
		d.Note(err)
		return false
	}
	if len(dec.Warnings.Errors) > 0 {
		d.set.Warnings = append(d.set.Warnings, d.Warn(&dec.Warnings, o.Node, spelled)...)
	}
	return true
}

// place notes where an object is, and refuses one that is in the set already.
func (s *Set) place(name string, here DocumentError) error {
	if here.Err = s.taken(name); here.Err != nil {
		return &here
	}
	put(&s.places, name, here)
	return nil
}

// taken returns an error that says where an object of the set is, nil if there is none of that name.
func (s *Set) taken(name string) error {
	there, found := s.places[name]
	if !found {
		return nil
	}
	return fmt.Errorf("is in %s:%d (document %d) already: remove one of the two", there.File, there.Line, there.Document)
}

// At returns where the document of an object of s is, without what is wrong with it. Of
// an object that was not decoded into s it is the zero value.
func (s *Set) At(obj Object) DocumentError { return s.places[ReferenceTo(obj).String()] }

// Add adds what other holds, as if its streams had been decoded into s after
// those of s: of two documents of one object the one in s stays, and the error
// joins a *DocumentError for each that names both places. They share objects
// and Secrets afterwards.
func (s *Set) Add(other *Set) error {
	var errs []error
	admit := func(name string) bool {
		err := s.place(name, other.places[name])
		errs = append(errs, err)
		return err == nil
	}
	left := map[Reference]bool{} // outputs of generators that are not added
	for _, obj := range other.Objects {
		ref := ReferenceTo(obj)
		added := !left[ref] && admit(ref.String())
		g, generator := obj.(*ArtifactGenerator)
		if added && generator {
			clashes := s.clashes(g, other.At(g))
			errs, added = append(errs, clashes...), clashes == nil
		}
		switch {
		case added:
			s.Objects = append(s.Objects, obj)
		case generator:
			for _, output := range g.Plan().Needs {
				left[output] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.Secrets)) {
		if admit("Secret/" + name) {
			put(&s.Secrets, name, other.Secrets[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.accounts)) {
		if admit("ServiceAccount/" + name) {
			put(&s.accounts, name, other.accounts[name])
		}
	}
	for name, why := range other.unusable {
		if s.unusable[name] == nil {
			put(&s.unusable, name, why)
		}
	}
	s.Invalid = append(s.Invalid, other.Invalid...)
	s.Skipped += other.Skipped
	s.Others = append(s.Others, other.Others...)
	s.Warnings = append(s.Warnings, other.Warnings...)
	return errors.Join(errs...)
}

// put adds to a map, which it makes when there is none.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
