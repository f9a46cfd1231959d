package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/provenance"
)

// checkProvenance returns an error if the statements cannot be written or would not be true. It
// runs before anything is fetched.
func (f *fetchFlags) checkProvenance(objects int, local map[string]string) error {
	u, err := url.Parse(f.Builder.ID)
	at, missing := os.Stat(f.provenance)
	switch {
	case f.provenance == "" && f.Builder.ID == "":
		return nil
	case f.provenance == "" || f.Builder.ID == "":
		return usage("--provenance and --builder-id go together: one says where to write a statement, the other who makes it")
	case err != nil || u.Scheme == "":
		return usage("--builder-id %q: want a URI, such as https://ci.example.org/release", f.Builder.ID)
	case len(local) > 0:
		return usage("--provenance excludes --from and directories: it describes what the origin had")
	case missing == nil && !at.IsDir() && (objects > 1 || !at.Mode().IsRegular()):
		return usage("--provenance %s: want a directory for the statements about %d objects, or a file for one", f.provenance, objects)
	}
	return checkParent("--provenance "+f.provenance, filepath.Clean(f.provenance))
}

// checkParent returns a usage error unless the directory of a file to be written exists.
func checkParent(what, file string) error {
	if dir := filepath.Dir(file); !isDir(dir) {
		return usage("%s: there is no directory %s", what, dir)
	}
	return nil
}

// writeProvenance writes the statements about objects. All objects must have succeeded.
func (f *fetchFlags) writeProvenance(rows []*objectResult) (err error) {
	if len(rows) > 1 || strings.HasSuffix(f.provenance, "/") {
		err = os.MkdirAll(f.provenance, 0o755)
	}
	for _, r := range rows {
		file := f.provenance
		if r.Provenance == nil {
			r.note("no provenance: this run fetched no artifact of it")
			continue
		}
		if isDir(file) {
			file = filepath.Join(file, strings.ReplaceAll(r.Provenance.Object(), "/", ".")+".json")
		}
		_, writeErr := writeStatement(file, r.Provenance)
		err = errors.Join(err, writeErr)
	}
	return err
}

// writeStatement writes a statement to a file, and returns its text.
func writeStatement(file string, s *provenance.Statement) ([]byte, error) {
	text, err := s.Encode()
	if err == nil {
		err = writePublic(file, text)
	}
	return text, err
}

// readStatement returns the statement in a file, or nil if file is "".
func readStatement(file string) (*provenance.Statement, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := provenance.Parse(text)
	if err != nil {
		return nil, usage("%s: %w", file, err)
	}
	return s, nil
}

// attach adds the manifest d to the subjects of the statement s, writes s to the file and attaches
// it to d. It returns the digest of the attached manifest.
func attach(ctx context.Context, to *oci.Origin, repo string, d ocispec.Descriptor, file string, s *provenance.Statement) (string, error) {
	s.Add(strings.TrimPrefix(repo, ociScheme), d.Digest.String())
	var attached ocispec.Descriptor
	text, err := writeStatement(file, s)
	if err == nil {
		attached, err = to.Attach(ctx, d, provenance.MediaType, text, map[string]string{"in-toto.io/predicate-type": provenance.PredicateType})
	}
	if err != nil {
		err = fmt.Errorf("%s was pushed, its provenance was not: %w", d.Digest, err)
	}
	return attached.Digest.String(), err
}

// verifyProvenance compares an artifact with the statement in a file: an artifact in a registry, an
// archive, or an artifact in the store, by default that of the object in the statement. With -f it
// also compares the spec of the object.
func (p *program) verifyProvenance(ctx context.Context, f *sourceFlags, file, store string, args []string) error {
	if len(args) > 1 {
		return usage("%q is an argument too many: a statement is about one artifact", args[1])
	}
	statement, err := readStatement(file)
	if err != nil {
		return err
	}
	s, err := p.openSession(f)
	if err != nil {
		return err
	}
	object := statement.Object()
	if len(f.files) > 0 {
		found, err := s.set.Find(object)
		if err = errors.Join(s.decodeErr, err); err != nil {
			return &exitError{exitUsage, err}
		}
		if err := statement.VerifySpec(found[0]); err != nil {
			return s.prefixError(file+": "+strings.Join(f.files, ", "), err)
		}
	}
	at := append(args, object)[0]
	digest, err := s.verifyArtifact(ctx, statement, at, store)
	if err != nil {
		return s.prefixError(file+": "+at, err)
	}
	at, builder := redact.String(at), statement.Predicate.RunDetails.Builder.ID
	return p.printResult(&f.outputFlags, map[string]string{"artifact": at, "digest": digest, "object": object, "builder": builder}, []string{at},
		[][]string{{"ARTIFACT", "DIGEST", "OBJECT", "BUILDER"}, {at, digest, object, builder}})
}

// verifyArtifact compares an artifact with a statement and returns its digest. The artifact is at
// oci://HOST/PATH[:TAG][@DIGEST | @RANGE], in a file or in the store.
func (s *session) verifyArtifact(ctx context.Context, statement *provenance.Statement, at, store string) (string, error) {
	if !strings.Contains(at, "://") {
		archive, err := (&artifactLookup{store: store}).open(ctx, at)
		if err != nil {
			return "", err
		}
		defer archive.Close()
		return statement.VerifyArchive(archive)
	}
	if !strings.HasPrefix(at, ociScheme) {
		return "", usage("want KIND/NAME, an archive or oci://HOST/PATH[:TAG]")
	}
	repo, err := s.registryOf(at)
	if err != nil {
		return "", err
	}
	s.fromURLs = true
	rows, err := s.run(ctx, headgate.Options{Objects: []source.Object{repo}, Until: source.StepResolve}, newMeter(s.stderr, true, nil), func(*objectResult) {})
	if err == nil {
		err = rows[0].err
	}
	if err != nil {
		return "", err
	}
	revision := rows[0].Revision.ID
	digest := revision[strings.LastIndexByte(revision, '@')+1:]
	return digest, statement.Verify(digest)
}
