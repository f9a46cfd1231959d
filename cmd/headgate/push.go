package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// pushTimeout bounds a push unless --timeout does.
const pushTimeout = 5 * time.Minute

type pushFlags struct {
	sourceFlags
	tags        []string
	annotations []string
	origin      string
	revision    string
	created     string
}

func (p *program) push() *cobra.Command {
	f := &pushFlags{sourceFlags: sourceFlags{parallel: 1}}
	c := &cobra.Command{
		Use:   "push SOURCE oci://HOST/PATH[:TAG]",
		Short: "Publish a directory or an artifact in a registry",
		Long: `Push publishes SOURCE as an OCI artifact, which an OCIRepository fetches. SOURCE is a directory, an archive
(tar.gz), an object (KIND/NAME or KIND/NAMESPACE/NAME) of the store, or a path in the store. TAG is latest
unless it or --tag says otherwise.

A PkgChart is published as a chart, which helm and a PkgRepository of type oci pull: HOST/PATH must end in its
name, and TAG is its version unless it or --tag says otherwise.

A directory is packed as fetch packs a Git repository: without what .sourceignore files and the default
patterns ignore ("explain ignore" tells which), links, devices, and the store if it is in there. An archive and
what is in the store are published byte for byte.

The digest depends on the content, on what is told of it, and on the release of headgate that packs a
directory, but not on the machine, its umask or the time: when it was created is told only by --created or
SOURCE_DATE_EPOCH. What the registry has is not uploaded again. Source and revision of an object are told
unless --source and --revision say otherwise; credentials in a URL are not.`,
		Example: `  headgate push ./manifests oci://registry.example.org/team/app:v1.2.3 --tag stable --docker-config
  headgate push ./manifests oci://registry.example.org/team/app --revision "$(git rev-parse HEAD)"
  headgate push gitrepository/app oci://registry.example.org/team/app:v1.2.3 -o json
  headgate push pkgchart/web oci://registry.example.org/charts/web`,
		Args: f.exactly(2),
		RunE: func(c *cobra.Command, args []string) error { return p.runPush(c.Context(), f, args[0], args[1]) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.tags, "tag", nil, "further `TAG`; repeatable")
	fl.StringVar(&f.origin, "source", "", "`URL` where the content comes from: the annotation org.opencontainers.image.source")
	fl.StringVar(&f.revision, "revision", "", "`REVISION` of the content there, such as main@sha1:COMMIT: the annotation org.opencontainers.image.revision")
	fl.StringVar(&f.created, "created", "", "`TIME` (RFC 3339) of the annotation org.opencontainers.image.created; default that in SOURCE_DATE_EPOCH, none without it")
	fl.StringArrayVar(&f.annotations, "annotation", nil, "further annotation `NAME=VALUE`; repeatable")
	registerStore(c, &f.store)
	f.registerAccess(c)
	registerLimit(c, &f.maxBytes)
	spanVar(c, &f.timeout, "timeout", pushTimeout, "bound of the whole command, 0 for none")
	f.registerOutput(c, "table", "json", "yaml", "name")
	c.ValidArgsFunction = completeStored(&f.store)
	return c
}

func (p *program) runPush(ctx context.Context, f *pushFlags, from, to string) error {
	s, err := p.open(&f.sourceFlags)
	if err != nil {
		return err
	}
	repo, err := s.target(to)
	if err != nil {
		return err
	}
	publication, err := p.publication(f, repo)
	if err != nil {
		return err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	b, err := p.pushArchive(ctx, s, from)
	if err != nil {
		return about(from, err)
	}
	defer b.Close()
	if err := b.describe(&publication, repo.Spec.URL); err != nil {
		return err
	}
	meter := newSender(p.stderr, f.quiet, repo)
	s.env.Progress = meter.show
	origin, err := s.origins.New(repo, s.env)
	if err != nil {
		return err
	}
	d, err := origin.(*oci.Origin).Publish(ctx, b, b.size, publication)
	meter.sent(repo, err)
	if err != nil {
		return about(from+" to "+to, source.Conceal(err, origin))
	}
	if !f.prints() {
		return nil
	}
	return asFailure(p.printPushed(f.output, pushed{
		URL: repo.Spec.URL, Tags: publication.Tags, Digest: d.Digest.String(), Size: b.size,
		Source: publication.Source, Revision: publication.Revision,
	}))
}

// target returns the repository that a URL names. The command bounds its use.
func (s *session) target(to string) (*source.OCIRepository, error) {
	if !strings.HasPrefix(to, ociScheme) {
		return nil, usage("%q: want oci://HOST/PATH[:TAG]", redact.String(to))
	}
	if err := s.flags.fit("oci"); err != nil {
		return nil, err
	}
	obj, err := s.adhocOCI(to)
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

// publication returns what the flags tell of what is pushed to repo.
func (p *program) publication(f *pushFlags, repo *source.OCIRepository) (oci.Publication, error) {
	out := oci.Publication{Tags: f.tags, Source: withoutLogin(f.origin), Revision: f.revision, Annotations: map[string]string{}}
	if tag := repo.Spec.Ref.Tag; tag != "" {
		out.Tags = append([]string{tag}, f.tags...)
	}
	for _, s := range f.annotations {
		name, value, found := strings.Cut(s, "=")
		if !found || name == "" {
			return out, usage("--annotation %q: want NAME=VALUE", s)
		}
		out.Annotations[name] = value
	}
	var err error
	out.Created, err = p.created(f.created)
	return out, err
}

// created returns when what is pushed was created, the zero time when nobody says.
func (p *program) created(flag string) (time.Time, error) {
	if flag != "" {
		t, err := time.Parse(time.RFC3339, flag)
		if err != nil {
			return t, usage("--created %q: want a time such as 2006-01-02T15:04:05Z", flag)
		}
		return t, nil
	}
	epoch, _ := p.lookup("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, usage("SOURCE_DATE_EPOCH %q: want the seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0), nil
}

// pushed is what push prints.
type pushed struct {
	URL      string   `json:"url"`
	Tags     []string `json:"tags"`
	Digest   string   `json:"digest"`
	Size     int64    `json:"size"` // of the archive
	Source   string   `json:"source,omitempty"`
	Revision string   `json:"revision,omitempty"`
}

func (p *program) printPushed(format string, d pushed) error {
	slices.Sort(d.Tags)
	d.Tags = slices.Compact(d.Tags)
	name := redact.String(d.URL) + "@" + d.Digest
	switch format {
	case "json", "yaml":
		return printValue(p.stdout, format, d)
	case "name":
		_, err := fmt.Fprintln(p.stdout, name)
		return err
	}
	t := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "ARTIFACT\tTAGS\tSIZE\n%s\t%s\t%s\n", name, strings.Join(d.Tags, ", "), humanSize(d.Size))
	return t.Flush()
}
