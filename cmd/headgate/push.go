package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

type pushFlags struct {
	sourceFlags
	oci.Publication
	annotations []string
	created     string
	provenance  string
}

func (p *program) push() *cobra.Command {
	f := new(pushFlags)
	c := &cobra.Command{
		Use:   "push SOURCE oci://HOST/PATH[:TAG]",
		Short: "Publish a directory or an artifact to a registry",
		Long: `Push publishes SOURCE as an OCI artifact that an OCIRepository can fetch. SOURCE is a directory, an archive (tar.gz), an
object of the store (KIND/NAME or KIND/NAMESPACE/NAME), or a path in the store. The default TAG is latest.

A PkgChart is published as a chart, for helm and for a PkgRepository of type oci: HOST/PATH must end with its name, and
the default TAG is its version.

A directory is packed as fetch packs a Git repository: without links, devices, the store, and files that .sourceignore
files or the default patterns ignore (see headgate explain ignore). Archives and artifacts of the store are published byte
for byte. The digest does not depend on the machine, its umask or the time; a time of creation is only published with
--created or SOURCE_DATE_EPOCH. The source and the revision of an object are published, without credentials, unless
--source and --revision give others.

With --provenance the statement of headgate fetch --provenance about the archive is published too, as an artifact that
refers to the manifest. The manifest becomes a second subject of it, in FILE as well: sign that afterwards.`,
		Example: `  headgate push ./manifests oci://registry.example.org/team/app --revision "$(git rev-parse HEAD)" --docker-config
  headgate push gitrepository/app oci://registry.example.org/team/app:v1.2.3 --tag stable
  headgate push pkgchart/web oci://registry.example.org/charts/web`,
		Args: rangeArgs(2, 2),
		RunE: func(c *cobra.Command, args []string) error { return p.runPush(c.Context(), f, args[0], args[1]) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.Tags, "tag", nil, "additional `TAG`; repeatable")
	fl.StringVar(&f.Source, "source", "", "`URL` of the content, for the annotation org.opencontainers.image.source")
	fl.StringVar(&f.Revision, "revision", "", "`REVISION` of the content, such as main@sha1:COMMIT, for the annotation org.opencontainers.image.revision")
	fl.StringVar(&f.created, "created", "", "`TIME` (RFC 3339) for the annotation org.opencontainers.image.created; default SOURCE_DATE_EPOCH, if it is set")
	fl.StringArrayVar(&f.annotations, "annotation", nil, "additional annotation `NAME=VALUE`; repeatable")
	fl.StringVar(&f.provenance, "provenance", "", "attach the statement in `FILE`, which headgate fetch wrote about the archive")
	registerStore(c, &f.store)
	f.registerAccess(c, false)
	registerLimit(c, &f.maxBytes)
	f.outputFlags.register(c, "table", "json", "yaml", "name")
	c.ValidArgsFunction = completeStored(&f.store)
	return c
}

func (p *program) runPush(ctx context.Context, f *pushFlags, from, to string) error {
	s, err := p.openSession(&f.sourceFlags)
	if err != nil {
		return err
	}
	defer s.close()
	repo, err := s.target(to)
	if err != nil {
		return err
	}
	if err := p.completePublication(f, repo); err != nil {
		return err
	}
	statement, err := readStatement(f.provenance)
	if err != nil {
		return err
	}
	if p.timeout == 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not done within 5m: --timeout sets another bound"))
		defer cancel()
		ctx = bounded
	}
	b, err := s.openArchive(ctx, from)
	if err != nil {
		return s.prefixError(from, err)
	}
	defer b.Close()
	if name := b.defaults.Annotations[ocispec.AnnotationTitle]; name != "" && path.Base(repo.Spec.URL) != name {
		return usage("%s: a chart is in the repository of its name: want oci://HOST/PATH/%s", redact.String(repo.Spec.URL), name)
	}
	b.applyDefaults(&f.Publication)
	if statement != nil {
		if _, err := statement.VerifyArchive(io.NewSectionReader(b, 0, b.size)); err != nil {
			return s.prefixError(f.provenance+": "+from, err)
		}
	}
	meter := newMeter(p.stderr, f.quiet, nil)
	meter.names[addressOf(repo)] = repo.Spec.URL
	s.env.Progress = meter.show
	origin := oci.New(repo, s.env, nil)
	d, err := origin.Publish(ctx, b, b.size, f.Publication)
	attached := ""
	if err == nil && statement != nil {
		attached, err = attach(ctx, origin, repo.Spec.URL, d, f.provenance, statement)
	}
	meter.done(addressOf(repo), "", "")
	meter.stop()
	if err != nil {
		return s.prefixError(from+" to "+to, source.Conceal(err, origin))
	}
	slices.Sort(f.Tags)
	result := pushResult{repo.Spec.URL, slices.Compact(f.Tags), d.Digest.String(), b.size, f.Source, f.Revision, attached}
	name := redact.String(result.URL) + "@" + result.Digest
	return p.printResult(&f.outputFlags, result, []string{name}, [][]string{{"ARTIFACT", "TAGS", "SIZE"}, {name, strings.Join(result.Tags, ", "), humanSize(result.Size)}})
}

// A pushResult is the output of push.
type pushResult struct {
	URL      string   `json:"url"`
	Tags     []string `json:"tags"`
	Digest   string   `json:"digest"`
	Size     int64    `json:"size"` // of the archive
	Source   string   `json:"source,omitempty"`
	Revision string   `json:"revision,omitempty"`

	Provenance string `json:"provenance,omitempty"` // digest of the manifest with the statement
}

// target returns the repository that a URL names. It has no timeout of its own, because the command
// has one.
func (s *session) target(to string) (*source.OCIRepository, error) {
	if !strings.HasPrefix(to, ociScheme) {
		return nil, usage("%q: want oci://HOST/PATH[:TAG]", redact.String(to))
	}
	obj, err := s.objectOf(context.Background(), to)
	if err != nil {
		return nil, err
	}
	repo := obj.(*source.OCIRepository)
	if repo.Spec.Ref.Digest != "" || repo.Spec.Ref.SemVer != "" {
		return nil, usage("%s: a digest is made by what is pushed: want oci://HOST/PATH[:TAG]", redact.String(to))
	}
	repo.Spec.Timeout = 0
	return repo, nil
}

// completePublication completes f for a push to repo. The creation time stays zero if neither --created nor
// SOURCE_DATE_EPOCH is set.
func (p *program) completePublication(f *pushFlags, repo *source.OCIRepository) (err error) {
	f.Source, f.Annotations = withoutLogin(f.Source), map[string]string{}
	if tag := repo.Spec.Ref.Tag; tag != "" {
		f.Tags = append([]string{tag}, f.Tags...)
	}
	for _, s := range f.annotations {
		name, value, found := strings.Cut(s, "=")
		if !found || name == "" {
			return usage("--annotation %q: want NAME=VALUE", s)
		}
		f.Annotations[name] = value
	}
	if f.created != "" {
		if f.Created, err = time.Parse(time.RFC3339, f.created); err != nil {
			return usage("--created %q: want a time such as 2006-01-02T15:04:05Z", f.created)
		}
	} else if epoch := p.getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return usage("SOURCE_DATE_EPOCH %q: want the seconds since 1970", epoch)
		}
		f.Created = time.Unix(seconds, 0)
	}
	return nil
}

// withoutLogin returns a URL without the credentials that CI checkouts put into it. It keeps a user
// name without a password for ssh only: elsewhere it may be a token.
func withoutLogin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	if _, secret := u.User.Password(); u.Scheme != "ssh" || secret {
		u.User = nil
	}
	return u.String()
}

// newSpool returns a temporary file with the output of write, positioned at its start. Closing the
// file deletes it.
func newSpool(write func(*os.File) error) (*os.File, error) {
	f, err := durable.TempFile()
	if err != nil {
		return nil, err
	}
	if err = write(f); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// A pushArchive is the archive that push publishes. It has its own file, so it does not change
// between the computation of the digest and the upload.
type pushArchive struct {
	*os.File
	size     int64
	defaults oci.Publication // known from the object: its source and revision, or the publication of a chart
}

// applyDefaults fills in the properties of the object that no flag sets.
func (b *pushArchive) applyDefaults(p *oci.Publication) {
	p.Source, p.Revision = cmp.Or(p.Source, b.defaults.Source), cmp.Or(p.Revision, b.defaults.Revision)
	p.ConfigType, p.Config, p.LayerType = b.defaults.ConfigType, b.defaults.Config, b.defaults.LayerType
	if len(p.Tags) == 0 {
		p.Tags = append(b.defaults.Tags, "latest")[:1]
	}
	annotations := map[string]string{}
	maps.Copy(annotations, b.defaults.Annotations)
	maps.Copy(annotations, p.Annotations)
	p.Annotations = annotations
}

// openArchive returns the archive for arg: a packed directory, or a copy of an archive or artifact.
// The caller closes it.
func (s *session) openArchive(ctx context.Context, arg string) (b *pushArchive, err error) {
	if strings.Contains(arg, "://") {
		return nil, usage("want a directory, an archive, or an object of the store: fetch a URL first")
	}
	b = new(pushArchive)
	b.File, err = newSpool(func(w *os.File) error {
		var err error
		if isDir(arg) {
			err = s.pack(ctx, w, arg)
		} else {
			err = b.copy(ctx, w, s.flags, arg)
		}
		if err == nil {
			b.size, err = w.Seek(0, io.SeekEnd)
		}
		return err
	})
	return b, err
}

// pack writes the archive of a directory.
func (s *session) pack(ctx context.Context, w io.Writer, dir string) error {
	r, err := s.openDir(ctx, dir)
	if err != nil {
		return err
	}
	report, err := artifact.Pack(ctx, w, r.rules.View(ctx, r.tree))
	if !s.flags.quiet {
		s.printLeftOut(dir, report)
	}
	if limit := s.flags.maxBytes; err == nil && limit > 0 && report.Bytes > limit {
		err = &artifact.LimitError{What: "bytes", Limit: limit}
	}
	return err
}

// copy copies an archive, or the artifact of an object. It fails if the archive cannot be read
// back.
func (b *pushArchive) copy(ctx context.Context, w *os.File, f *sourceFlags, arg string) error {
	lookup := artifactLookup{store: f.store, maxBytes: f.maxBytes}
	file, err := lookup.open(ctx, arg)
	if err != nil {
		return err
	}
	defer file.Close()
	if isIndex(lookup.found) {
		return usage("an index of charts is no archive: push the PkgChart of one")
	}
	tree, err := lookup.tree(io.TeeReader(file, w))
	if err == nil {
		err = tree.Close()
	}
	if err != nil || lookup.object == nil {
		return err
	}
	b.defaults.Source, b.defaults.Revision = source.OriginOf(lookup.object), lookup.object.Artifact().Revision
	if _, isChart := lookup.object.(*source.PkgChart); isChart { // the revision of a chart is its version
		b.defaults, err = chart.Publication(io.NewSectionReader(w, 0, math.MaxInt64), lookup.limits())
	}
	return err
}
