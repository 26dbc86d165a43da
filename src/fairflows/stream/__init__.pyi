from .batches import BatchEncoder as BatchEncoder
from .batches import BatchFindings as BatchFindings
from .batches import encode_batch as encode_batch
from .engines import encode_folder as encode_folder
from .files import decode_file as decode_file
from .files import encode_file as encode_file
