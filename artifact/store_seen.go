package artifact

import (
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// A sight is what a [Store] saw of an object last, so that it need not look as
// closely again. It is a cache: others may change the directory at any time.
type sight struct {
	place        place         // of the artifact that was as recorded
	digest       string        // that it has
	file, record durable.Stamp // of the artifact and of its record, then
	alone        string        // path of the artifact beside which there was no other, "" when that is not known
	at           time.Time     // when it was alone
}

// sights are those of all objects. The zero value is ready to use.
type sights struct {
	mu   sync.Mutex
	dirs map[string]sight
}

func (s *sights) of(dir string) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirs[dir]
}

func (s *sights) change(dir string, change func(*sight)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirs == nil {
		s.dirs = make(map[string]sight)
	}
	now := s.dirs[dir]
	change(&now)
	s.dirs[dir] = now
}

func (s *sights) forget(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dirs, dir)
}

// stamps returns the stamps of what lies at p and of its record; ok is false
// when one is not there, or may change without getting another stamp.
func (s *Store) stamps(p place) (file, record durable.Stamp, ok bool) {
	now := time.Now()
	folder, err := s.root.OpenRoot(p.folder()) // its path is walked once
	if err != nil {
		return file, record, false
	}
	defer folder.Close()
	a, err1 := folder.Lstat(p.file)
	b, err2 := folder.Lstat("." + p.file)
	if err1 != nil || err2 != nil {
		return file, record, false
	}
	file, record = durable.StampOf(a), durable.StampOf(b)
	return file, record, file.Tells() && record.Tells() && file.Settled(now) && record.Settled(now)
}

// unchanged reports whether what lies at p is what was seen there last, when it
// was as recorded and had digest. If not, what it returns can be seen.
func (s *Store) unchanged(p place, digest string) (is bool, seen func()) {
	file, record, ok := s.stamps(p)
	if !ok {
		return false, func() {}
	}
	last := s.seen.of(p.dir)
	if last.file == file && last.record == record && last.digest == digest && last.place == p {
		return true, nil
	}
	return false, func() {
		s.seen.change(p.dir, func(now *sight) { now.place, now.digest, now.file, now.record = p, digest, file, record })
	}
}

// lookAgain is how long an object has one artifact alone without being looked at.
const lookAgain = time.Hour

// alone reports whether an artifact was seen to be the only one of its object, lately.
func (s *Store) alone(dir, path string) bool {
	last := s.seen.of(dir)
	passed := s.now().Sub(last.at)
	return last.alone == path && 0 <= passed && passed < lookAgain
}
