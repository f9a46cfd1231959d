package bucket

// A listing is the objects of a bucket, sorted by key as bytes.
type listing struct {
	objects []Object
	dropped []bool
}

func (l *listing) len() int { return len(l.objects) }

// at returns the object i.
func (l *listing) at(i int) Object { return l.objects[i] }

// kept reports whether the object i is in the artifact: no rule ignores it, and it is no directory marker.
func (l *listing) kept(i int) bool { return !l.dropped[i] }

// search returns the first i whose key is not less than key.
func (l *listing) search(key string) int {
	i := 0
	for i < len(l.objects) && l.objects[i].Key < key {
		i++
	}
	return i
}
