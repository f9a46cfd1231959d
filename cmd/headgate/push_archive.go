package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A pushArchive is the archive that push publishes. It is a file of its own, so that
// nobody changes it between its digest and its upload.
type pushArchive struct {
	*os.File
	size     int64
	origin   string // where the content of an object comes from
	revision string
	chart    oci.Publication // how a chart is published, the zero value of anything else
}

// newPushArchive creates the file. Where the system can, it is gone with the process.
func newPushArchive() (*pushArchive, error) {
	f, err := os.CreateTemp("", "headgate-push-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // an open file cannot be removed everywhere: Close does it
	return &pushArchive{File: f}, nil
}

// Close removes the file.
func (b *pushArchive) Close() error {
	err := b.File.Close()
	if gone := os.Remove(b.Name()); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// describe tells of the object what nobody said. A chart needs a repository of
// its name.
func (b *pushArchive) describe(p *oci.Publication, repo string) error {
	if name := b.chart.Annotations[ocispec.AnnotationTitle]; name != "" && path.Base(repo) != name {
		return usage("%s: a chart is in the repository of its name: want oci://HOST/PATH/%s", redact.String(repo), name)
	}
	p.Source, p.Revision = cmp.Or(p.Source, b.origin), cmp.Or(p.Revision, b.revision)
	p.ConfigType, p.Config, p.LayerType = b.chart.ConfigType, b.chart.Config, b.chart.LayerType
	if len(p.Tags) == 0 {
		p.Tags = b.chart.Tags
	}
	if len(p.Tags) == 0 {
		p.Tags = []string{"latest"}
	}
	for name, text := range b.chart.Annotations {
		if _, said := p.Annotations[name]; !said {
			p.Annotations[name] = text
		}
	}
	return nil
}

// pushArchive returns the archive of what arg names.
func (p *program) pushArchive(ctx context.Context, s *session, arg string) (*pushArchive, error) {
	if strings.Contains(arg, "://") {
		return nil, usage("want a directory, an archive, or an object of the store: fetch a URL first")
	}
	b, err := newPushArchive()
	if err != nil {
		return nil, err
	}
	if info, statErr := os.Stat(arg); statErr == nil && info.IsDir() {
		err = p.pack(ctx, b, arg, s.flags)
	} else {
		err = b.copy(ctx, s, arg)
	}
	if err == nil {
		b.size, err = b.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// pack writes the archive of a directory.
func (p *program) pack(ctx context.Context, w io.Writer, dir string, f *sourceFlags) error {
	r, err := openDir(dir, f.store)(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	report, err := artifact.Pack(ctx, w, r.rules.View(ctx, r.tree))
	if !f.quiet {
		p.leftOut(dir, report)
	}
	if err == nil && f.maxBytes > 0 && report.Bytes > f.maxBytes {
		err = &artifact.LimitError{What: "bytes", Limit: f.maxBytes}
	}
	return err
}

// copy copies an archive, or the artifact of an object. It has to be one that
// can be read back.
func (b *pushArchive) copy(ctx context.Context, s *session, arg string) error {
	lookup := artifactLookup{store: s.flags.store, maxBytes: s.flags.maxBytes}
	file, err := lookup.open(ctx, arg)
	if err != nil {
		return err
	}
	defer file.Close()
	if isIndex(lookup.found) {
		return usage("an index of charts is no archive: push the PkgChart of one")
	}
	tree, err := lookup.tree(io.TeeReader(file, b))
	if err != nil {
		return err
	}
	if err := tree.Close(); err != nil {
		return err
	}
	switch lookup.object.(type) {
	case nil:
	case *source.PkgChart: // its revision is its version
		b.chart, err = chart.Publication(io.NewSectionReader(b, 0, math.MaxInt64), lookup.limits())
	default:
		b.origin, b.revision = originOf(lookup.object), lookup.object.Artifact().Revision
	}
	return err
}

// originOf returns where the content of an object comes from, without credentials.
func originOf(obj source.Object) string {
	address := ""
	switch o := obj.(type) {
	case *source.GitRepository:
		address = o.Spec.URL
	case *source.OCIRepository:
		address = o.Spec.URL
	case *source.PkgRepository:
		address = o.Spec.URL
	case *source.Bucket:
		if u, err := o.Spec.EndpointURL(); err == nil {
			address = u.JoinPath(o.Spec.BucketName).String()
		}
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return redact.URL(u)
}

// withoutLogin returns a URL without the credentials that a checkout in CI has
// in it; a user name alone is none over ssh, and may be a token elsewhere.
func withoutLogin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	if _, secret := u.User.Password(); u.Scheme == "ssh" && !secret {
		return address
	}
	u.User = nil
	return u.String()
}
