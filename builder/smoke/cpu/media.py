"""The cpu checks `audio-decodes` and `video-decodes`: encode small files in the image, decode them as vLLM does."""

from __future__ import annotations

from builder.model.check import Check
from builder.smoke.check import check_kind
from builder.smoke.cpu.execution import Execution, last_line_is

_AUDIO = r"""
import io, av, numpy, soundfile, soxr
rate, pitch = 24000, 440
tone = (0.5 * numpy.sin(2 * numpy.pi * pitch * numpy.arange(rate) / rate)).astype("float32")

def check(name, samples, rate):
    assert abs(len(samples) / rate - 1) < 0.2, (name, len(samples), rate)
    power = abs(numpy.fft.rfft(samples))
    heard = power.argmax() * rate / len(samples)
    assert abs(heard - pitch) < 5, (name, heard)

def with_av(data):
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    samples = numpy.concatenate([frame.reshape(1, -1)[0] for frame in frames])
    return samples.astype("float32"), rate

done = []
for name in ("WAV", "FLAC", "OGG", "MP3"):
    file = io.BytesIO()
    soundfile.write(file, tone, rate, format=name)
    samples, got = soundfile.read(io.BytesIO(file.getvalue()), dtype="float32")
    check(name + " by soundfile", samples, got)
    check(name + " by av", *with_av(file.getvalue()))
    check(name + " resampled by soxr", soxr.resample(samples, got, 16000), 16000)
    done.append(name)
print(" ".join(done))
"""

_VIDEO = r"""
import io, av, cv2, numpy
file = io.BytesIO()
with av.open(file, "w", format="mp4") as container:
    stream = container.add_stream("mpeg4", rate=10)
    stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
    for number in range(10):
        picture = numpy.full((48, 64, 3), 20 + 20 * number, "uint8")
        for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
            container.mux(packet)
    for packet in stream.encode():
        container.mux(packet)
data = file.getvalue()

def check(name, pictures):
    light = [float(picture.mean()) for picture in pictures]
    assert len(light) == 10, (name, len(light))
    assert all(abs(value - 20 - 20 * number) < 8 for number, value in enumerate(light)), (name, light)

with av.open(io.BytesIO(data)) as container:
    check("av", [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
# vLLM hands OpenCV the bytes, not a file.
backends = cv2.videoio_registry.getStreamBufferedBackends()
assert backends, "OpenCV reads no video from memory"
capture = cv2.VideoCapture(io.BytesIO(data), backends[0], [])
assert capture.isOpened(), "OpenCV does not open the video"
pictures = []
while True:
    ok, picture = capture.read()
    if not ok:
        break
    pictures.append(picture)
check("OpenCV", pictures)
print("10 frames by av", av.__version__, "and OpenCV", cv2.__version__)
"""


@check_kind("cpu", "audio-decodes")
def audio_decodes(check: Check) -> Execution:
    """soundfile and PyAV decode a tone from WAV, FLAC, Ogg Vorbis and MP3, soxr resamples it; its pitch is kept."""
    return Execution(check, last_line_is(None), code=_AUDIO)


@check_kind("cpu", "video-decodes")
def video_decodes(check: Check) -> Execution:
    """PyAV, and OpenCV from memory, decode ten frames of MPEG-4; each frame keeps its brightness."""
    return Execution(check, last_line_is(None), code=_VIDEO)
