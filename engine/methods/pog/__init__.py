"""Plan-on-Graph: sub-objectives, a memory and reversals steer walks of any width."""
