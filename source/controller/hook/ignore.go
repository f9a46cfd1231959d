package hook

import (
	"path"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// ignore says why a call changes nothing of an object, "" when it may.
func ignore(obj source.Object, c call) string {
	if c.idle {
		return "the event " + show(c.event) + " changes no content"
	}
	switch obj := obj.(type) {
	case *source.GitRepository:
		return ignoreRefs(obj, c.refs)
	case *source.OCIRepository:
		return ignoreImages(obj, c.images)
	}
	return ""
}

// show returns a name that came from elsewhere.
func show(name string) string {
	const most = 200
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return redact.String(name)
}

// ignoreRefs says why none of the changes are of what a repository follows.
func ignoreRefs(g *source.GitRepository, refs []change) string {
	follows, known := followed(g.Spec.Ref)
	if !known || len(refs) == 0 {
		return ""
	}
	for _, c := range refs {
		switch {
		case !strings.HasPrefix(c.ref, "refs/"), c.ref == follows && !c.deleted:
			return ""
		case follows == allTags && strings.HasPrefix(c.ref, allTags): // without one another may be the highest
			return ""
		}
	}
	last := refs[len(refs)-1]
	if last.deleted {
		return show(last.ref) + " was deleted"
	}
	return "it follows " + follows + ", not " + show(last.ref)
}

// allTags is what a repository follows that has a range of versions.
const allTags = "refs/tags/"

// followed returns the reference that is followed, or allTags. It is known when
// exactly one field says it, or none.
func followed(r *source.GitRepositoryRef) (ref string, known bool) {
	if r == nil {
		return "refs/heads/master", true
	}
	switch one := *r; one {
	case source.GitRepositoryRef{}:
		return "refs/heads/master", true
	case source.GitRepositoryRef{Branch: r.Branch}:
		return "refs/heads/" + r.Branch, true
	case source.GitRepositoryRef{Tag: r.Tag}:
		return allTags + r.Tag, true
	case source.GitRepositoryRef{SemVer: r.SemVer}:
		return allTags, true
	case source.GitRepositoryRef{Name: r.Name}:
		return r.Name, strings.HasPrefix(r.Name, "refs/") && !strings.HasSuffix(r.Name, "^{}")
	}
	return "", false
}

// ignoreImages says why none of the images are what an object follows.
func ignoreImages(o *source.OCIRepository, images []image) (why string) {
	for _, i := range images {
		if why = ignoreImage(o, i); why == "" {
			return ""
		}
	}
	return why
}

func ignoreImage(o *source.OCIRepository, i image) string {
	own, other := path.Base(o.Spec.URL), path.Base(i.repository)
	tag, known := followedTag(o.Spec.Ref)
	switch {
	case i.idle:
		return "no manifest was pushed"
	case i.deleted && known:
		return show(strings.TrimSuffix(i.repository+":"+i.tag, ":")) + " was deleted"
	case i.repository != "" && !strings.EqualFold(own, other): // those before may be named otherwise by a mirror
		return "it follows " + own + ", not " + show(i.repository)
	case known && i.tag != "" && i.tag != tag && !signs(i.tag):
		return "it follows the tag " + tag + ", not " + show(i.tag)
	}
	return ""
}

// followedTag returns the tag that is followed, if it is one and known.
func followedTag(r *source.OCIRepositoryRef) (tag string, known bool) {
	if r == nil || *r == (source.OCIRepositoryRef{}) {
		return "latest", true
	}
	return r.Tag, *r == source.OCIRepositoryRef{Tag: r.Tag}
}

// signs reports whether a tag may be that of a signature: verification may wait for it.
func signs(tag string) bool { return strings.HasPrefix(tag, "sha256-") }
